//! Database servers with the load generators that their users know, as shell scripts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sim::scheduler::Counts;

use crate::idle::Wakes;
use crate::{
    Clock, Latency, Outcome, PathCosts, cores, counted_output_of, host, latency_of, median,
};

/// A server: scripts with its data directory in `$DATA`.
pub(crate) struct Server {
    pub name: &'static str,
    /// Workload of the load generator, latency of reads and of flushes, microseconds.
    pub jobs: &'static [(&'static str, u64, u64)],
    /// Makes the data directory with tables.
    install: &'static str,
    /// Starts it and waits until it answers.
    start: &'static str,
    /// Runs `$JOB` by `$CLIENTS` for `$SECONDS_EACH`.
    load: &'static str,
    stop: &'static str,
    /// Whether its programs are started by root or by another user.
    as_root: bool,
    outcome: fn(&str) -> Option<Outcome>,
}

/// MariaDB with sysbench; a pool of 16 MiB for 40 MB of tables.
pub(crate) const MARIADB: Server = Server {
    name: "mariadb",
    jobs: &[
        ("oltp_point_select", 80, 0),
        ("oltp_point_select", 10, 0),
        ("oltp_write_only", 80, 0),
        ("oltp_write_only", 80, 1200),
        ("oltp_read_write", 80, 1200),
    ],
    install: "mariadb-install-db --no-defaults --user=root --datadir=$DATA \
        --auth-root-authentication-method=normal; start; \
        mariadb -S $DATA/s -e 'create database sbtest'; sysbench oltp_read_write $TABLES prepare; stop",
    start: "TABLES=\"--mysql-socket=$DATA/s --mysql-user=root --tables=1 --table-size=200000\"
        mariadbd --no-defaults --user=root --skip-networking --innodb-use-native-aio=OFF \
        --innodb-buffer-pool-size=16M --innodb-log-file-size=48M --innodb-flush-method=O_DIRECT \
        --skip-log-bin --performance-schema=OFF --innodb-buffer-pool-load-at-startup=OFF \
        --innodb-buffer-pool-dump-at-shutdown=OFF --datadir=$DATA --socket=$DATA/s --pid-file=$DATA/pid \
        > $DATA.log 2>&1 &
        until mariadb-admin -S $DATA/s ping > /dev/null 2>&1; do sleep 0.05; done",
    load: "sysbench $JOB $TABLES --threads=$CLIENTS --time=$SECONDS_EACH --percentile=99 run",
    stop: "mariadb-admin -S $DATA/s shutdown; wait",
    as_root: true,
    outcome: |text| {
        let rate = *after(text, "transactions:").get(1)?;
        Some(Outcome { rate, p99: after(text, "99th percentile:").first()? * 1e3 })
    },
};

/// PostgreSQL with pgbench; shared buffers of 16 MiB for 75 MB of tables.
pub(crate) const POSTGRES: Server = Server {
    name: "postgres",
    jobs: &[("tpcb-like", 80, 0), ("tpcb-like", 80, 1200), ("select-only", 80, 0)],
    install: "$BIN/initdb -D $DATA --no-sync -U bench > /dev/null; start; \
        $BIN/createdb $AS bench; $BIN/pgbench $AS -i -q -s 5 bench; stop",
    start: "AS=\"-h $DATA -U bench\"
        $BIN/postgres -D $DATA -c listen_addresses= -c unix_socket_directories=$DATA \
        -c shared_buffers=16MB -c autovacuum=off > $DATA.log 2>&1 &
        SERVER=$!
        until $BIN/pg_isready $AS -q; do sleep 0.05; done",
    load: "$BIN/pgbench $AS -b $JOB -M prepared -n -T $SECONDS_EACH -c $CLIENTS -l \
        --log-prefix=$DATA.latency bench; \
        cat $DATA.latency* | cut -d' ' -f3 | sort -n | awk '{ all[NR] = $1 } \
        END { print \"p99 =\", all[int(NR * 0.99)] }'; rm -f $DATA.latency*",
    stop: "kill -INT $SERVER; wait",
    as_root: false,
    outcome: |text| {
        let p99 = *after(text, "p99 =").first()?;
        Some(Outcome { rate: *after(text, "tps =").first()?, p99 })
    },
};

/// Up to two numbers after a word.
fn after(text: &str, name: &str) -> Vec<f64> {
    let rest = text.split_once(name).map_or("", |(_, rest)| rest);
    let words = rest.split(|c| " ()\n".contains(c));
    words.filter_map(|word| word.parse().ok()).take(2).collect()
}

impl Server {
    /// Whether this user can run it; says so if not.
    pub fn is_possible(&self) -> bool {
        // SAFETY: it has no arguments and cannot fail.
        let possible = (unsafe { libc::geteuid() } == 0) == self.as_root;
        if !possible {
            let users = ["another user with CAP_SYS_NICE", "root"];
            eprintln!(
                "{} is left out: it is run by {}",
                self.name,
                users[usize::from(self.as_root)]
            );
        }
        possible
    }

    /// A shell command with the data directory.
    fn shell(&self, text: &str, data: &Path) -> Command {
        let newest = "BIN=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)";
        let (start, stop) = (self.start, self.stop);
        let script = format!("{newest}\nstart() {{\n{start}\n}}\nstop() {{\n{stop}\n}}\n{text}\n");
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).env("DATA", data).stdout(Stdio::piped());
        command
    }

    /// Makes a data directory with the load generator's tables in `place`.
    pub fn make_tables(&self, place: &Path) -> PathBuf {
        let data = place.join("data");
        let output = self.shell(self.install, &data).output().expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        data
    }

    /// Runs the load generator on a copy of the tables on the drive, in virtual or in real time.
    pub fn run(
        &self,
        tables: &Path,
        (workload, clients): (&str, u32),
        (latency, path): (Latency, PathCosts),
        is_real: bool,
    ) -> Outcome {
        let (text, _) =
            self.load(tables, (workload, clients, 2), (latency, path), Clock::new(is_real));
        (self.outcome)(&text).unwrap_or_else(|| panic!("{text}"))
    }

    /// Runs it for this many seconds; returns its output, and counts that include start and stop.
    fn load(
        &self,
        tables: &Path,
        (workload, clients, seconds): (&str, u32, u32),
        (latency, path): (Latency, PathCosts),
        clock: Clock<'_>,
    ) -> (String, Counts) {
        // MariaDB takes /dev/shm for persistent memory.
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let data = place.path().join("data");
        let copy = Command::new("cp").arg("-a").arg(tables).arg(&data).status();
        assert!(copy.expect("cp").success(), "the tables were not copied");
        let mut command = self.shell(&format!("start\n{}\nstop", self.load), &data);
        command.env("JOB", workload).env("CLIENTS", clients.to_string());
        command.env("SECONDS_EACH", seconds.to_string());
        counted_output_of(command, &host(path, &data), latency, clock)
    }
}

/// Rate, and waits, wake-ups on an idle and on a busy CPU, and started threads per query.
type PerQuery = [f64; 5];

/// Compares waits, wake-ups and switches per point select, from runs of 1 and 3 seconds: what both do at
/// start and stop cancels. Prints a CSV with medians over interleaved rounds.
pub(crate) fn compare_wakes(rounds: usize, path: PathCosts) {
    let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let tables = MARIADB.make_tables(place.path());
    let latency = latency_of(80, 0);
    let counter = Wakes::new(cores()).expect("tracefs, for root");
    let names = ["waits", "idle", "busy", "switches"];
    let names = names.map(|name| format!("{name}_real,{name}_virtual")).join(",");
    println!("clients,real,virtual,error,{names}");
    for clients in [1, 2, 4, 8, 16, 32] {
        let run = |is_real: bool| -> PerQuery {
            let clock = if is_real { Clock::Counted(&counter) } else { Clock::Virtual };
            let [short, long] = [1, 3].map(|seconds| {
                let job = ("oltp_point_select", clients, seconds);
                let (text, counts) = MARIADB.load(&tables, job, (latency, path), clock);
                let queries = *after(&text, "transactions:").first().expect("a number of queries");
                let Counts { waits, idle_wakes, busy_wakes, switches, .. } = counts;
                let counts = [waits, idle_wakes, busy_wakes, switches].map(|count| count as f64);
                (queries, counts)
            });
            let queries = long.0 - short.0;
            let [waits, idle, busy, switches] =
                std::array::from_fn(|at| (long.1[at] - short.1[at]) / queries);
            [queries / 2.0, waits, idle, busy, switches]
        };
        let found: Vec<[PerQuery; 2]> = (0..rounds)
            .map(|round| {
                let first = run(round % 2 == 0);
                let second = run(round % 2 == 1);
                if round % 2 == 0 { [first, second] } else { [second, first] }
            })
            .collect();
        let part =
            |mode: usize, of: usize| median(found.iter().map(|round| round[mode][of]).collect());
        let [real, simulated] = [part(0, 0), part(1, 0)];
        let counts = (1..5).map(|of| format!("{:.3},{:.3}", part(0, of), part(1, of)));
        let counts = counts.collect::<Vec<_>>().join(",");
        println!("{clients},{real:.0},{simulated:.0},{:+.3},{counts}", simulated / real - 1.0);
    }
}

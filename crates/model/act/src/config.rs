//! The configuration file of `act_storage`: `name: value` lines, `#` comments.
//!
//! Invariants: an unknown key, a value out of range and a missing mandatory key are errors with the line;
//! defaults are those of ACT.

use serde::{Serialize, Serializer};
use thiserror::Error;

/// Largest record and large-block operation, bytes.
const LARGEST: u64 = 8 << 20;
/// Maximum number of devices.
const DEVICES_MAX: usize = 128;

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{message}", if *line > 0 { format!("line {line}: ") } else { String::new() })]
pub struct ConfigError {
    /// From 1; 0 if a key is missing.
    pub line: usize,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// Serializes the number of devices: their names are not part of a job.
fn count<S: Serializer>(names: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(names.len() as u64)
}

/// Defines [`Config`] by its keys with their fields, types and ACT's defaults.
macro_rules! config {
    ($($(#[$attribute:meta])* $key:literal $field:ident: $type:ty = $default:literal;)*) => {
        /// A checked configuration; fields in the order of ACT's output.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        pub struct Config {
            /// Devices under test.
            #[serde(serialize_with = "count")]
            pub device_names: Vec<String>,
            $($(#[$attribute])* pub $field: $type,)*
        }

        impl Default for Config {
            /// ACT's defaults; devices and duration are mandatory and empty here.
            fn default() -> Self {
                Self { device_names: Vec::new(), $($field: $default,)* }
            }
        }

        /// Every key of the release.
        const KEYS: &[&str] = &["device-names", $($key),*];

        impl Config {
            fn value(&mut self, key: &str) -> Option<&mut dyn Value> {
                match key {
                    $($key => Some(&mut self.$field),)*
                    _ => None,
                }
            }

            /// Keys and values in ACT's format, without those of the devices.
            pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
                vec![$(($key, self.$field.text())),*]
            }
        }
    };
}
config! {
    /// Size of files in ACT's undocumented file mode, MiB; 0: block devices.
    "file-size-mbytes" file_size_mbytes: u32 = 0;
    /// Threads that issue requests; 0: five per CPU.
    "service-threads" service_threads: u32 = 0;
    /// Length of the test.
    "test-duration-sec" test_duration_sec: u32 = 0;
    /// Interval of the log, seconds.
    "report-interval-sec" report_interval_sec: u32 = 1;
    /// Histograms in microseconds instead of milliseconds.
    #[serde(skip)]
    "microsecond-histograms" microsecond_histograms: bool = false;
    /// Client reads per second, all devices together.
    "read-reqs-per-sec" read_reqs_per_sec: u32 = 0;
    /// Client writes per second, all devices together.
    "write-reqs-per-sec" write_reqs_per_sec: u32 = 0;
    /// Bytes of a record, the smallest if they vary.
    "record-bytes" record_bytes: u32 = 1536;
    /// Largest record, bytes; 0 if all have the same size.
    "record-bytes-range-max" record_bytes_range_max: u32 = 0;
    /// Size of large-block operations, KiB.
    "large-block-op-kbytes" large_block_op_kbytes: u32 = 128;
    /// Copies of every record.
    "replication-factor" replication_factor: u32 = 1;
    /// Share of writes that read first, percent.
    "update-pct" update_pct: u32 = 0;
    /// Blocks with less live data than this are defragmented, percent.
    "defrag-lwm-pct" defrag_lwm_pct: u32 = 50;
    /// Defragmentation does not read from the device.
    "no-defrag-reads" no_defrag_reads: bool = false;
    /// Share of written data that is random, percent.
    "compress-pct" compress_pct: u32 = 100;
    /// Writes without `O_DSYNC`.
    "disable-odsync" disable_odsync: bool = false;
    /// Each client write goes to the device separately.
    "commit-to-device" commit_to_device: bool = false;
    /// A thread per device that scans it in large blocks.
    "tomb-raider" tomb_raider: bool = false;
    /// Pause between those reads, microseconds.
    "tomb-raider-sleep-usec" tomb_raider_sleep_usec: u32 = 0;
    /// Lag at which the test stops, seconds; 0: never.
    "max-lag-sec" max_lag_sec: u32 = 10;
}

trait Value {
    fn read(&mut self, text: &str) -> Result<(), String>;
    fn text(&self) -> String;
}

impl Value for u32 {
    fn read(&mut self, text: &str) -> Result<(), String> {
        let refused = |_| format!("`{text}` is not a whole number up to {}", Self::MAX);
        *self = text.parse().map_err(refused)?;
        Ok(())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    fn read(&mut self, text: &str) -> Result<(), String> {
        *self = match text {
            "yes" => true,
            "no" => false,
            _ => return Err(format!("`{text}`; allowed: yes, no")),
        };
        Ok(())
    }

    fn text(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }
}

/// Keys of earlier releases, with the one that removed them.
const REMOVED: [(&str, &str); 5] = [
    ("scheduler-mode", "6.5"),
    ("commit-min-size", "6.4"),
    ("num-queues", "6.0"),
    ("threads-per-queue", "6.0"),
    ("max-reqs-queued", "6.0"),
];

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ConfigError`] with the line.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let mut lines: Vec<(&str, usize)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line_number = number + 1;
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let refuse = |message: String| ConfigError { line: line_number, message };
            let split = content.find([':', ' ', '\t']).unwrap_or(content.len());
            let (key, rest) = content.split_at(split);
            let value = rest.trim_start_matches([':', ' ', '\t']).trim();
            let Some(known) = KEYS.iter().find(|known| **known == key) else {
                let removed = REMOVED.iter().find(|(known, _)| *known == key);
                let when = removed.map_or(String::new(), |(_, release)| {
                    format!(" (it was removed in release {release})")
                });
                return Err(refuse(format!(
                    "`{key}` is not a key of release {}{when}; allowed: {}",
                    crate::RELEASE,
                    KEYS.join(", ")
                )));
            };
            lines.push((known, line_number));
            config.set(key, value).map_err(refuse)?;
        }
        config.check().map_err(|(key, message)| ConfigError {
            line: lines.iter().rfind(|(known, _)| *known == key).map_or(0, |(_, line)| *line),
            message: format!("{key}: {message}"),
        })?;
        Ok(config)
    }

    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        if let Some(value) = self.value(key) {
            return value.read(text).map_err(|reason| format!("{key}: {reason}"));
        }
        let names = text.split([',', ' ', '\t']).filter(|name| !name.is_empty());
        self.device_names = names.map(str::to_owned).collect();
        Ok(())
    }

    /// Checks ACT's rules, each with its key.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let large = u64::from(self.large_block_op_kbytes) * 1024;
        let (smallest, biggest) = (self.record_bytes, self.record_bytes_range_max);
        let rules = [
            (
                !self.device_names.is_empty() && self.device_names.len() <= DEVICES_MAX,
                "device-names",
                "mandatory: 1 to 128 names separated by commas",
            ),
            (
                self.device_names.len() > DEVICES_MAX
                    || (1..self.device_names.len())
                        .all(|at| !self.device_names[..at].contains(&self.device_names[at])),
                "device-names",
                "a device is named twice",
            ),
            (self.test_duration_sec > 0, "test-duration-sec", "mandatory and not 0"),
            (self.report_interval_sec > 0, "report-interval-sec", "must not be 0"),
            (
                smallest > 0 && u64::from(smallest) <= LARGEST,
                "record-bytes",
                "allowed: 1 to 8388608",
            ),
            (
                biggest == 0 || (biggest > smallest && u64::from(biggest) <= LARGEST),
                "record-bytes-range-max",
                "allowed: 0, or above record-bytes up to 8388608",
            ),
            (
                large.is_power_of_two() && large <= LARGEST,
                "large-block-op-kbytes",
                "allowed: a power of two up to 8192",
            ),
            (
                large >= u64::from(smallest.max(biggest)).next_multiple_of(16),
                "large-block-op-kbytes",
                "a block must hold a record",
            ),
            (self.replication_factor > 0, "replication-factor", "must not be 0"),
            (self.update_pct <= 100, "update-pct", "allowed: 0 to 100"),
            (self.defrag_lwm_pct < 100, "defrag-lwm-pct", "allowed: 0 to 99"),
            (self.compress_pct <= 100, "compress-pct", "allowed: 0 to 100"),
            (
                !(self.disable_odsync && self.commit_to_device),
                "disable-odsync",
                "not together with commit-to-device",
            ),
            (
                u64::from(self.read_reqs_per_sec) + u64::from(self.write_reqs_per_sec) > 0,
                "read-reqs-per-sec",
                "must not be 0 together with write-reqs-per-sec",
            ),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, key, message)) => Err((key, message.to_owned())),
            None => Ok(()),
        }
    }

    /// The same test with the standard load of rating `n` (2000 reads and 1000 writes per second) on every
    /// device.
    #[must_use]
    pub fn at_rating(&self, rating: u32) -> Self {
        let devices = u32::try_from(self.device_names.len()).unwrap_or(1);
        let times = |rate: u32| rate.saturating_mul(rating).saturating_mul(devices);
        Self { read_reqs_per_sec: times(2000), write_reqs_per_sec: times(1000), ..self.clone() }
    }

    /// The rating of a standard load; `None` for other rates.
    #[must_use]
    pub fn rating(&self) -> Option<u32> {
        let devices = u32::try_from(self.device_names.len()).ok()?.max(1);
        let rating = self.read_reqs_per_sec / 2000 / devices;
        let same = self.at_rating(rating);
        let standard = same.read_reqs_per_sec == self.read_reqs_per_sec
            && same.write_reqs_per_sec == self.write_reqs_per_sec;
        standard.then_some(rating)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const SAMPLE: &str = "\
# A comment
device-names: /dev/sda,/dev/sdb   # two
test-duration-sec: 86400
read-reqs-per-sec: 40000
write-reqs-per-sec: 20000
service-threads: 40
commit-to-device: yes
";

    #[test]
    fn a_real_file_is_read_and_defaults_are_the_programs() {
        let config = Config::parse(SAMPLE).unwrap();
        assert_eq!(config.device_names, ["/dev/sda", "/dev/sdb"]);
        assert_eq!((config.record_bytes, config.large_block_op_kbytes), (1536, 128));
        assert!(config.commit_to_device && !config.tomb_raider);
        assert_eq!(config.rating(), Some(10));
        assert_eq!(config.at_rating(30).read_reqs_per_sec, 120_000);
    }

    /// Errors must name the line and the allowed values, which ACT does not.
    #[test]
    fn errors_name_the_line_and_what_is_allowed() {
        let error = |from: &str, to: &str| Config::parse(&SAMPLE.replace(from, to)).unwrap_err();
        let unknown = error("service-threads", "scheduler-mode");
        assert_eq!(unknown.line, 6);
        assert!(unknown.message.contains("device-names, "), "{unknown}");
        assert!(unknown.message.contains("removed in release 6.5"), "{unknown}");
        assert_eq!(error("/dev/sdb", "/dev/sda").line, 2);
        assert_eq!(error("40\n", "many\n").line, 6);
        assert_eq!(error("yes", "true").line, 7);
        assert_eq!(error("86400", "0").line, 3);
        assert!(error("device-names", "#").message.contains("mandatory"));
        assert_eq!(error("yes", "yes\ndisable-odsync: yes").line, 8);
        assert_eq!(error("yes", "yes\nrecord-bytes-range-max: 8").line, 8);
        assert_eq!(error("yes", "yes\nlarge-block-op-kbytes: 100").line, 8);
    }

    #[test]
    fn every_key_can_be_set() {
        for &key in KEYS {
            let value = match key {
                "device-names" => "/dev/sdz",
                "large-block-op-kbytes" => "256",
                "record-bytes-range-max" => "4096",
                "commit-to-device" | "disable-odsync" => "no",
                _ if Config::default().number_or_word(key) => "yes",
                _ => "3",
            };
            let text = format!("{SAMPLE}{key}: {value}\n");
            let config = Config::parse(&text).unwrap_or_else(|error| panic!("{key}: {error}"));
            let same = config == Config::parse(SAMPLE).unwrap();
            assert!(!same || value == "no" || key == "commit-to-device", "{key} had no effect");
        }
    }

    impl Config {
        fn number_or_word(mut self, key: &str) -> bool {
            self.set(key, "yes").is_ok()
        }
    }
}

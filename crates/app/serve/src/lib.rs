//! Serves runs to a browser: list, run pages, trends of a study, runs in progress.
//!
//! Invariants: listens on 127.0.0.1 only; nothing is served without the token, which only its starter has;
//! read-only; only run folders directly under its folder are read.

mod gate;
mod shelf;
mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gate::{Gate, Pass};
use shelf::Shelf;
use wire::{Answer, HttpRequest};

/// Maximum connections; more are closed, and each has a time limit.
const CONNECTIONS_MAX: usize = 64;
/// Pause after a failed accept, which may be due to exhausted descriptors.
const REST: Duration = Duration::from_millis(50);

/// A running server.
pub struct Library {
    listener: TcpListener,
    gate: Gate,
    shelf: Shelf,
    port: u16,
}

impl Library {
    /// Serves the runs under `folder` on `port` of loopback, 0 for any free one.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn open(folder: PathBuf, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        let port = listener.local_addr()?.port();
        let gate = Gate::new(port);
        Ok(Self { listener, gate, shelf: Shelf::new(folder), port })
    }

    /// The address to open; it contains the token.
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.gate.token())
    }

    /// Answers until the process ends.
    pub fn serve(&self) {
        let open = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            loop {
                let Ok((stream, _)) = self.listener.accept() else {
                    std::thread::sleep(REST);
                    continue;
                };
                if open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
                    open.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                let open = &open;
                let answered = std::thread::Builder::new().spawn_scoped(scope, move || {
                    // A page that cannot be rendered must not end the server.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.connection(stream)));
                    open.fetch_sub(1, Ordering::SeqCst);
                });
                if answered.is_err() {
                    open.fetch_sub(1, Ordering::SeqCst);
                }
            }
        });
    }

    /// One request, one answer; clients that disconnect or time out are dropped.
    fn connection(&self, mut stream: TcpStream) {
        let Ok(asked) = wire::read(&mut stream) else { return };
        let answer = self.answer(&asked);
        let _ = wire::write(&mut stream, &answer, asked.method != "HEAD");
    }

    fn answer(&self, asked: &HttpRequest) -> Answer {
        let pass = self.gate.pass(&asked.path, asked.host(), Some(&asked.cookies()));
        match pass {
            Pass::Wrong => Answer::words(
                403,
                "Open the address that `crosspoint serve` printed; it contains the access token.",
            ),
            _ if !matches!(asked.method.as_str(), "GET" | "HEAD") => {
                Answer::words(405, "This server is read-only.")
            }
            Pass::Token => Answer {
                headers: vec![("Set-Cookie", self.gate.cookie()), ("Location", "/".to_owned())],
                ..Answer::words(303, "")
            },
            Pass::Cookie => self.page(&asked.path),
        }
    }

    fn page(&self, url: &str) -> Answer {
        let path = url.split(['?', '#']).next().unwrap_or_default();
        let mut parts = path.trim_start_matches('/').splitn(2, '/');
        let (kind, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let Some(name) = decoded(name) else { return Answer::words(404, "No such page.") };
        let page = match kind {
            "" if name.is_empty() => self.shelf.list().map(Some),
            "run" => self.shelf.run(&name),
            "trend" => self.shelf.trend(&name),
            "live" => match name.strip_suffix(".json") {
                Some(name) => return self.live(name),
                None => self.shelf.live(&name),
            },
            _ => Ok(None),
        };
        match page {
            Ok(Some(body)) => Answer::page(body),
            Ok(None) => Answer::words(404, "No such page."),
            Err(error) => Answer::words(500, &error),
        }
    }

    fn live(&self, name: &str) -> Answer {
        match self.shelf.told(name) {
            Ok(Some(body)) => Answer { kind: "application/json", ..Answer::page(body) },
            Ok(None) => Answer::words(404, "No such run."),
            Err(error) => Answer::words(500, &error),
        }
    }
}

/// Decodes percent-encoding; `None` if the result is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn asked(port: u16, text: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn open(folder: &std::path::Path) -> (u16, String) {
        let library = Library::open(folder.to_owned(), 0).unwrap();
        let (port, token) = (library.port, library.gate.token().to_owned());
        std::thread::spawn(move || library.serve());
        (port, token)
    }

    fn get(port: u16, path: &str, more: &str) -> String {
        asked(
            port,
            &format!(
                "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{more}\r\n"
            ),
        )
    }

    /// Other users of the host can connect to the port: without the token they must get nothing.
    #[test]
    fn without_the_token_nothing_is_given() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("secret-run")).unwrap();
        let (port, token) = open(dir.path());
        let cookie = |value: &str| format!("Cookie: crosspoint-{port}={value}\r\n");
        let wrong = "0".repeat(token.len());
        for (path, more) in [
            ("/".to_owned(), String::new()),
            ("/run/secret-run".to_owned(), String::new()),
            ("/?token=".to_owned(), String::new()),
            (format!("/?token={wrong}"), String::new()),
            (format!("/run/secret-run?token={}", &token[1..]), String::new()),
            ("/".to_owned(), cookie(&wrong)),
            ("/".to_owned(), cookie("")),
        ] {
            let answer = get(port, &path, &more);
            assert!(answer.starts_with("HTTP/1.1 403"), "{path} {more}: {answer}");
            assert!(!answer.contains("secret-run"));
        }
        let first = get(port, &format!("/?token={token}"), "");
        assert!(
            first.starts_with("HTTP/1.1 303") && first.contains("HttpOnly; SameSite=Strict"),
            "{first}"
        );
        assert!(get(port, "/", &cookie(&token)).starts_with("HTTP/1.1 200"));
    }

    /// A web page whose domain resolves to this host must not read runs with the user's cookie (DNS
    /// rebinding).
    #[test]
    fn other_names_of_this_host_and_other_methods_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (port, token) = open(dir.path());
        let cookie = format!("Cookie: crosspoint-{port}={token}\r\nConnection: close\r\n\r\n");
        for host in ["evil.example", "127.0.0.1:1", ""] {
            let answer = asked(port, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n{cookie}"));
            assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
        }
        let post = asked(
            port,
            &format!("POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\n{cookie}"),
        );
        assert!(post.starts_with("HTTP/1.1 405"), "{post}");
    }

    /// A client without the token must not be able to stop the server or keep others out.
    #[test]
    fn bodies_and_silence_hold_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (port, token) = open(dir.path());
        for length in ["4611686018427387904", "18446744073709551615", "-1"] {
            let request = format!(
                "POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {length}\r\n\r\n"
            );
            assert!(asked(port, &request).starts_with("HTTP/1.1 403"), "{length}");
        }
        let silent: Vec<TcpStream> = (0..CONNECTIONS_MAX / 2)
            .map(|_| {
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
                stream.write_all(b"POST / HTTP/1.1\r\nContent-Length: 5000\r\n").unwrap();
                stream
            })
            .collect();
        let cookie = format!("Cookie: crosspoint-{port}={token}\r\n");
        assert!(get(port, "/", &cookie).starts_with("HTTP/1.1 200"));
        drop(silent);
        let long = format!("X: {}\r\n", "a".repeat(64 << 10));
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let _ = stream.write_all(format!("GET / HTTP/1.1\r\n{long}").as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "it is left");
        assert!(get(port, "/", &cookie).starts_with("HTTP/1.1 200"));
    }

    /// Run names in requests must not lead out of the folder.
    #[test]
    fn no_name_leads_out_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("runs");
        std::fs::create_dir(&runs).unwrap();
        std::fs::write(dir.path().join("run.json"), "outside").unwrap();
        let (port, token) = open(&runs);
        let cookie = format!("Cookie: crosspoint-{port}={token}\r\n");
        for path in [
            "/run/..", "/run/%2e%2e", "/run/../run.json", "/run/%2Fetc", "/live/...json", "/run/",
            "/x", "/run/%zz",
        ] {
            let answer = get(port, path, &cookie);
            assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        }
    }

    /// Links in the folder to other runs or files must not be served.
    #[test]
    fn links_out_of_the_folder_are_no_runs() {
        let dir = tempfile::tempdir().unwrap();
        let (runs, outside) = (dir.path().join("runs"), dir.path().join("outside"));
        std::fs::create_dir_all(runs.join("linked")).unwrap();
        std::fs::create_dir_all(outside.join("trials")).unwrap();
        std::fs::write(outside.join("run.json"), "{}").unwrap();
        for file in ["run.json", "trials"] {
            std::os::unix::fs::symlink(outside.join(file), runs.join("linked").join(file)).unwrap();
        }
        let (port, token) = open(&runs);
        let cookie = format!("Cookie: crosspoint-{port}={token}\r\n");
        assert!(get(port, "/run/linked", &cookie).starts_with("HTTP/1.1 404"));
        assert!(!get(port, "/", &cookie).contains("linked"));
    }
}

//! One HTTP/1.1 request, read and answered; the connection is then closed.
//!
//! Invariants: requests are bounded in length and time, so slow senders are dropped; bodies are not read;
//! invalid requests get an error answer.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Time limit for receiving a request and for sending the answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum size of a request line with its headers, bytes.
const REQUEST_MAX: usize = 16 << 10;
/// Maximum number of headers.
const HEADERS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct HttpRequest {
    pub method: String,
    pub path: String,
    host: Vec<String>,
    cookies: Vec<String>,
}

impl HttpRequest {
    /// The host name of the request; `None` if there are several.
    pub fn host(&self) -> Option<&str> {
        match self.host.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    pub fn cookies(&self) -> String {
        self.cookies.join("; ")
    }
}

pub(crate) struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub body: String,
    pub headers: Vec<(&'static str, String)>,
}

impl Answer {
    pub fn page(body: String) -> Self {
        Self { status: 200, kind: "text/html; charset=utf-8", body, headers: Vec::new() }
    }

    pub fn words(status: u16, words: &str) -> Self {
        let body = format!("{words}\n");
        Self { status, kind: "text/plain; charset=utf-8", body, headers: Vec::new() }
    }
}

/// Reads the request line and headers.
pub(crate) fn read(stream: &mut TcpStream) -> io::Result<HttpRequest> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut part = [0; 2048];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..count]);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes).map_err(io::Error::other)? {
            httparse::Status::Complete(_) => return Ok(asked(&request)),
            httparse::Status::Partial if bytes.len() > REQUEST_MAX => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            httparse::Status::Partial => {}
        }
    }
}

fn asked(request: &httparse::Request<'_, '_>) -> HttpRequest {
    let of = |name: &str| {
        let own = request.headers.iter().filter(|one| one.name.eq_ignore_ascii_case(name));
        own.map(|one| String::from_utf8_lossy(one.value).into_owned()).collect()
    };
    HttpRequest {
        method: request.method.unwrap_or_default().to_owned(),
        path: request.path.unwrap_or_default().to_owned(),
        host: of("host"),
        cookies: of("cookie"),
    }
}

/// Writes the response and closes.
pub(crate) fn write(stream: &mut TcpStream, answer: &Answer, with_body: bool) -> io::Result<()> {
    let reason = match answer.status {
        200 => "OK",
        303 => "See Other",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Internal Server Error",
    };
    let mut head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
         Referrer-Policy: no-referrer\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(head.as_bytes())?;
    if with_body {
        stream.write_all(answer.body.as_bytes())?;
    }
    stream.shutdown(Shutdown::Write)
}

//! Access control: requests need the token and must address this host as 127.0.0.1 or localhost.
//!
//! Invariants: 128 random bits, compared in constant time; requests for another host name are refused, even
//! with a token.

use sha2::{Digest, Sha256};

/// Decides on access.
#[derive(Debug)]
pub(crate) struct Gate {
    token: String,
    port: u16,
}

/// Access of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Refused.
    Wrong,
    /// Has the token; a cookie replaces it from now on.
    Token,
    /// Granted.
    Cookie,
}

impl Gate {
    pub(crate) fn new(port: u16) -> Self {
        Self { token: stack::random_hex(32), port }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Name of the cookie, with the port: servers on other ports have their own.
    fn name(&self) -> String {
        format!("crosspoint-{}", self.port)
    }

    pub(crate) fn cookie(&self) -> String {
        format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.name(), self.token)
    }

    pub(crate) fn pass(&self, url: &str, host: Option<&str>, cookies: Option<&str>) -> Pass {
        let names = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        if !host.is_some_and(|host| names.iter().any(|name| name == host)) {
            return Pass::Wrong;
        }
        let name = self.name();
        let mut cookies = cookies.unwrap_or_default().split(';').map(str::trim);
        let is_own = |one: &str| {
            let value = one.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('='));
            value.is_some_and(|value| self.is_token(value))
        };
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let mut query = query.split('&').filter_map(|one| one.strip_prefix("token="));
        if query.any(|value| self.is_token(value)) {
            Pass::Token
        } else if cookies.any(is_own) {
            Pass::Cookie
        } else {
            Pass::Wrong
        }
    }

    /// Compares hashes, so timing reveals nothing about the token.
    fn is_token(&self, text: &str) -> bool {
        Sha256::digest(text.as_bytes()) == Sha256::digest(self.token.as_bytes())
    }
}

//! Any text as a size, a time and a share: what parses prints back to the same value.
use units::{Bytes, Nanos, Share};

pub fn run(text: &str) {
    if let Ok(size) = text.parse::<Bytes>() {
        assert_eq!(size.exact().parse(), Ok(size));
    }
    if let Ok(time) = text.parse::<Nanos>() {
        assert_eq!(time.exact().parse(), Ok(time));
    }
    if let Ok(share) = text.parse::<Share>() {
        assert_eq!(share.exact().parse(), Ok(share));
    }
}

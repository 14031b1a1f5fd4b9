//! Compression speed of this host on a workload's own data, page by page.
//!
//! The rows are those of sysbench's tables (a key, a number, 120 and 60 characters of digits and dashes), in
//! pages of the database's compression unit. One thread; each codec compresses and decompresses the same
//! pages until enough time has passed. Invariant: decompressed data equals the original, or the program
//! panics.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{SQL_C, SQL_PAD, write_digits};

/// Bytes of pages compressed in turn: more than fits into a core's L2 cache.
const DATA: usize = 4 << 20;
/// Time for each codec and direction.
const TIME: Duration = Duration::from_millis(60);

/// A codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// LZ4's block format.
    Lz4,
    /// Snappy's raw format.
    Snappy,
    /// Deflate with zlib's header, level 6.
    Zlib,
    /// Zstandard, level 3.
    Zstd,
}

units::words!(Codec {
    Lz4 => "lz4", Snappy => "snappy", Zlib => "zlib", Zstd => "zstd",
});

impl Codec {
    /// # Panics
    /// Never: writing to memory does not fail.
    fn encode(self, page: &[u8]) -> Vec<u8> {
        match self {
            Self::Lz4 => lz4_flex::block::compress(page),
            Self::Snappy => {
                snap::raw::Encoder::new().compress_vec(page).expect("invariant: pages are small")
            }
            Self::Zlib => {
                let level = flate2::Compression::new(6);
                let mut out = flate2::write::ZlibEncoder::new(Vec::new(), level);
                out.write_all(page).expect("invariant: memory takes what is written");
                out.finish().expect("invariant: memory takes what is written")
            }
            Self::Zstd => {
                zstd::bulk::compress(page, 3).expect("invariant: memory takes what is written")
            }
        }
    }

    /// # Panics
    /// Never: the input comes from [`Codec::encode`].
    fn decode(self, packed: &[u8], size: usize) -> Vec<u8> {
        match self {
            Self::Lz4 => {
                lz4_flex::block::decompress(packed, size).expect("invariant: own encoding")
            }
            Self::Snappy => {
                snap::raw::Decoder::new().decompress_vec(packed).expect("invariant: own encoding")
            }
            Self::Zlib => {
                let mut out = Vec::with_capacity(size);
                let mut packed = flate2::read::ZlibDecoder::new(packed);
                packed.read_to_end(&mut out).expect("invariant: own encoding");
                out
            }
            Self::Zstd => zstd::bulk::decompress(packed, size).expect("invariant: own encoding"),
        }
    }
}

/// Speed of a codec.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodecSpeed {
    /// The codec.
    pub codec: Codec,
    /// Bytes before over bytes after.
    pub ratio: f64,
    /// Compression, bytes of input per second.
    pub encode: f64,
    /// Output of decompression, bytes per second.
    pub decode: f64,
}

/// Pages of `page` bytes of sysbench's rows, drawn from `seed`.
#[must_use]
pub fn sysbench_pages(page: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut row = |number: u32, out: &mut Vec<u8>| {
        let (mut c, mut pad) = ([0; SQL_C], [0; SQL_PAD]);
        write_digits(&mut random, &mut c);
        write_digits(&mut random, &mut pad);
        out.extend(number.to_be_bytes());
        out.extend((number / 2).to_be_bytes());
        out.extend(c);
        out.extend(pad);
    };
    let mut number = 1;
    let pages = (DATA / page).max(1);
    (0..pages)
        .map(|_| {
            let mut out = Vec::with_capacity(page + 256);
            while out.len() < page {
                row(number, &mut out);
                number += 1;
            }
            out.truncate(page);
            out
        })
        .collect()
}

/// Measures every codec on `pages`, about half a second in total.
///
/// # Panics
/// If a codec does not return its input.
#[must_use]
pub fn measure(pages: &[Vec<u8>]) -> Vec<CodecSpeed> {
    Codec::ALL.into_iter().map(|codec| measure_one(codec, pages)).collect()
}

fn measure_one(codec: Codec, pages: &[Vec<u8>]) -> CodecSpeed {
    let packed: Vec<Vec<u8>> = pages.iter().map(|page| codec.encode(page)).collect();
    for (page, packed) in pages.iter().zip(&packed) {
        assert!(codec.decode(packed, page.len()) == *page, "{} lost data", codec.word());
    }
    let sum = |all: &[Vec<u8>]| all.iter().map(Vec::len).sum::<usize>() as f64;
    let all: Vec<(&Vec<u8>, &Vec<u8>)> = pages.iter().zip(&packed).collect();
    let encode = speed(&all, |(page, _)| codec.encode(page).len());
    let decode = speed(&all, |(page, packed)| codec.decode(packed, page.len()).len());
    CodecSpeed { codec, ratio: sum(pages) / sum(&packed).max(1.0), encode, decode }
}

/// Bytes of pages per second.
fn speed(all: &[(&Vec<u8>, &Vec<u8>)], work: impl Fn(&(&Vec<u8>, &Vec<u8>)) -> usize) -> f64 {
    let (began, mut done) = (Instant::now(), 0usize);
    loop {
        for one in all {
            std::hint::black_box(work(std::hint::black_box(one)));
            done += one.0.len();
            if began.elapsed() >= TIME {
                return done as f64 / began.elapsed().as_secs_f64();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A codec that loses data would look fast.
    #[test]
    fn every_codec_gives_back_what_it_was_given_and_makes_it_smaller() {
        let pages = sysbench_pages(16 << 10, 1);
        assert!(
            pages.len() == DATA / (16 << 10) && pages.iter().all(|page| page.len() == 16 << 10)
        );
        for codec in Codec::ALL {
            let packed = codec.encode(&pages[0]);
            assert_eq!(codec.decode(&packed, pages[0].len()), pages[0]);
            // Digits use a third of a byte's bits; codecs without entropy coding gain little.
            let least = if matches!(codec, Codec::Zlib | Codec::Zstd) { 1.8 } else { 0.99 };
            assert!(pages[0].len() as f64 / packed.len() as f64 > least, "{codec:?}");
        }
    }
}

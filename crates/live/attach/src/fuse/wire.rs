//! Messages of the kernel's FUSE protocol (7.31 and later; linux/include/uapi/linux/fuse.h), as far as a
//! directory with one file needs them.
//!
//! Invariants: any bytes parse to a request or to nothing; integers are in native byte order, as the
//! kernel's.

/// Major and minor version of the protocol.
const VERSION: (u32, u32) = (7, 31);
/// Bytes of the header of a request, and of an answer.
const IN_HEADER: usize = 40;
pub(crate) const OUT_HEADER: usize = 16;
/// Maximum bytes of a read or write.
pub(crate) const TRANSFER_MAX: u32 = 1 << 20;
/// Room for any request.
pub(crate) const REQUEST_MAX: usize = TRANSFER_MAX as usize + 4096;
/// Background requests that the kernel allows in flight.
const BACKGROUND_MAX: u16 = 4096;

/// Inode of the directory; the file's is 2.
pub(crate) const ROOT: u64 = 1;
pub(crate) const FILE: u64 = 2;
/// Name of the file.
pub(crate) const NAME: &str = "disk";

// Flags of INIT: asynchronous reads and direct I/O, writes and requests of many pages.
const ASYNC_READ: u32 = 1 << 0;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;
/// Flag: the second word of flags is valid.
const MORE_FLAGS: u32 = 1 << 30;
/// Requests may come through io_uring rings (Linux 6.14).
const OVER_IO_URING: u64 = 1 << 41;
/// Flags of OPEN: direct I/O with parallel writes, or keep the page cache.
const OPEN_DIRECT: u32 = 1 << 0;
const OPEN_KEEP_CACHE: u32 = 1 << 1;
const OPEN_PARALLEL_WRITES: u32 = 1 << 6;
/// Flags of FALLOCATE: keep the size, and punch a hole or zero.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

/// A kernel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FuseOperation<'a> {
    /// Negotiation, with what the kernel offers.
    Init {
        readahead: u32,
        flags: u64,
    },
    Lookup {
        name: &'a [u8],
    },
    Attributes,
    /// SETATTR: the size, if given; whether mode or owner are.
    SetAttributes {
        size: Option<u64>,
        owner: bool,
    },
    /// OPEN of the file, and whether with O_DIRECT.
    Open {
        direct: bool,
    },
    OpenDirectory,
    ReadDirectory {
        from: u64,
    },
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: &'a [u8],
    },
    Flush,
    /// A range is discarded.
    Discard {
        offset: u64,
        length: u64,
    },
    /// FALLOCATE of a range.
    Allocate {
        end: u64,
    },
    Statistics,
    /// Forbidden: create, remove or rename.
    Forbidden,
    /// A no-op that expects an answer.
    Nothing,
    /// A no-op without an answer.
    Silent,
    /// A truncated request.
    Malformed,
    /// An unknown request.
    Unknown,
}

/// A request from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FuseRequest<'a> {
    /// Its number.
    pub unique: u64,
    pub node: u64,
    /// The client's process ID; 0 if unknown.
    pub process: u32,
    pub asked: FuseOperation<'a>,
}

/// Whether a kernel with these INIT flags offers rings.
pub(crate) const fn offers_rings(flags: u64) -> bool {
    flags & OVER_IO_URING != 0
}

/// Reads integers from a body.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

impl<'a> FuseRequest<'a> {
    /// Reads a message; `None` if its header is incomplete or states a length that is shorter than the
    /// header or longer than `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let head = Body(bytes);
        let length = head.u32(0)? as usize;
        let body = bytes.get(IN_HEADER..length)?;
        let (unique, node) = (head.u64(8)?, head.u64(16)?);
        // A truncated request is answered, too, because its client waits.
        let asked = asked(head.u32(4)?, body).unwrap_or(FuseOperation::Malformed);
        let process = head.u32(32)?;
        Some(Self { unique, node, process, asked })
    }

    /// Parses a request whose header, arguments and data are separate, as in a ring; `None` if the header is
    /// truncated.
    pub fn of_parts(head: &[u8], arguments: &'a [u8], data: &'a [u8]) -> Option<Self> {
        let head = Body(head);
        let (operation, unique, node) = (head.u32(4)?, head.u64(8)?, head.u64(16)?);
        let body = Body(arguments);
        let asked = match operation {
            // A name that is the only argument is in the data part.
            LOOKUP => asked(operation, data),
            WRITE => body.u64(8).zip(body.u32(16)).and_then(|(offset, length)| {
                data.get(..length as usize).map(|data| FuseOperation::Write { offset, data })
            }),
            _ => asked(operation, arguments),
        };
        let asked = asked.unwrap_or(FuseOperation::Malformed);
        Some(Self { unique, node, process: head.u32(32)?, asked })
    }
}

/// Operations with other parts in a ring.
const LOOKUP: u32 = 1;
const WRITE: u32 = 16;

fn asked(operation: u32, bytes: &[u8]) -> Option<FuseOperation<'_>> {
    let body = Body(bytes);
    Some(match operation {
        LOOKUP => {
            let end = bytes.iter().position(|byte| *byte == 0)?;
            FuseOperation::Lookup { name: &bytes[..end] }
        }
        // FORGET, INTERRUPT, DESTROY, BATCH_FORGET: the kernel expects no answer.
        2 | 36 | 38 | 42 => FuseOperation::Silent,
        3 => FuseOperation::Attributes,
        4 => {
            let which = body.u32(0)?;
            let size = if which & 8 != 0 { Some(body.u64(16)?) } else { None };
            FuseOperation::SetAttributes { size, owner: which & 7 != 0 }
        }
        14 => FuseOperation::Open { direct: body.u32(0)? & O_DIRECT != 0 },
        15 => FuseOperation::Read { offset: body.u64(8)?, length: body.u32(16)? },
        WRITE => {
            let (offset, length) = (body.u64(8)?, body.u32(16)? as usize);
            FuseOperation::Write { offset, data: bytes.get(40..40 + length)? }
        }
        17 => FuseOperation::Statistics,
        // RELEASE, FLUSH (a close), RELEASEDIR, FSYNCDIR, ACCESS.
        18 | 25 | 29 | 30 | 34 => FuseOperation::Nothing,
        20 => FuseOperation::Flush,
        // SYMLINK, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, CREATE, RENAME2.
        6 | 8 | 9 | 10 | 11 | 12 | 13 | 35 | 45 => FuseOperation::Forbidden,
        26 => {
            let (readahead, flags) = (body.u32(8)?, u64::from(body.u32(12)?));
            // Older kernels send no second word of flags.
            let more =
                u64::from(body.u32(16).filter(|_| flags as u32 & MORE_FLAGS != 0).unwrap_or(0));
            FuseOperation::Init { readahead, flags: flags | more << 32 }
        }
        27 => FuseOperation::OpenDirectory,
        28 => FuseOperation::ReadDirectory { from: body.u64(8)? },
        43 => {
            let (offset, length, mode) = (body.u64(8)?, body.u64(16)?, body.u32(24)?);
            let emptied = mode == KEEP_SIZE | PUNCH_HOLE || mode & !KEEP_SIZE == ZERO_RANGE;
            match emptied {
                true => FuseOperation::Discard { offset, length },
                // Preallocation: the disk already has all of its space.
                false if mode & !KEEP_SIZE == 0 => {
                    FuseOperation::Allocate { end: offset.saturating_add(length) }
                }
                false => FuseOperation::Unknown,
            }
        }
        _ => FuseOperation::Unknown,
    })
}

/// `O_DIRECT` as the kernel headers define it for this architecture.
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();

/// Attributes of a file or directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub node: u64,
    /// Bytes of the file.
    pub size: u64,
    /// User and group that own it.
    pub owner: (u32, u32),
}

/// An answer that is being written; the header is filled in at the end.
#[derive(Debug, Default)]
pub(crate) struct FuseAnswer(Vec<u8>);

impl FuseAnswer {
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(OUT_HEADER + bytes))
    }

    /// The body, without the header.
    pub fn body(&self) -> &[u8] {
        &self.0[OUT_HEADER..]
    }

    pub fn clear(&mut self) -> &mut Self {
        self.0.clear();
        self.0.resize(OUT_HEADER, 0);
        self
    }

    /// The bytes of an answer to `unique`: an error (a positive errno) or the body.
    pub fn finish(&mut self, unique: u64, error: Option<i32>) -> &[u8] {
        if error.is_some() {
            self.0.truncate(OUT_HEADER);
        }
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[4..8].copy_from_slice(&(-error.unwrap_or(0)).to_ne_bytes());
        self.0[8..16].copy_from_slice(&unique.to_ne_bytes());
        &self.0
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    /// A buffer for this many bytes of data.
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        let at = self.0.len();
        self.0.resize(at + bytes, 0);
        &mut self.0[at..]
    }

    /// The answer to INIT: the accepted flags, with or without io_uring.
    pub fn init(&mut self, readahead: u32, offered: u64, ring: bool) {
        let mut flags = (ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES) & offered as u32;
        let mut more = 0;
        if ring {
            flags |= MORE_FLAGS;
            more = (OVER_IO_URING >> 32) as u32;
        }
        self.u32(VERSION.0).u32(VERSION.1).u32(readahead).u32(flags);
        self.u16(BACKGROUND_MAX).u16(BACKGROUND_MAX / 4 * 3).u32(TRANSFER_MAX);
        // Time granularity; pages of a request; no alignment of mappings.
        self.u32(1).u16((TRANSFER_MAX / 4096) as u16).u16(0).u32(more);
        for _ in 0..7 {
            self.u32(0);
        }
    }

    /// The answer to LOOKUP, valid for an hour, since nothing changes.
    pub fn entry(&mut self, of: Attributes) {
        self.u64(of.node).u64(0).u64(VALID_SECONDS).u64(VALID_SECONDS).u32(0).u32(0);
        self.attributes_of(of);
    }

    /// The answer to GETATTR.
    pub fn attributes(&mut self, of: Attributes) {
        self.u64(VALID_SECONDS).u32(0).u32(0);
        self.attributes_of(of);
    }

    fn attributes_of(&mut self, Attributes { node, size, owner }: Attributes) {
        const DIRECTORY: u32 = 0o040_700;
        const REGULAR: u32 = 0o100_600;
        let (mode, size) = if node == ROOT { (DIRECTORY, 0) } else { (REGULAR, size) };
        self.u64(node).u64(size).u64(size / 512);
        // Times of access, change and status, and their nanoseconds.
        self.u64(0).u64(0).u64(0).u32(0).u32(0).u32(0);
        self.u32(mode).u32(1).u32(owner.0).u32(owner.1);
        // No device number, block size 4096, no flags.
        self.u32(0).u32(4096).u32(0);
    }

    /// The answer to OPEN: direct I/O, with parallel writes.
    pub fn opened(&mut self, direct: bool) {
        let flags = if direct { OPEN_DIRECT | OPEN_PARALLEL_WRITES } else { OPEN_KEEP_CACHE };
        self.u64(0).u32(flags).u32(0);
    }

    /// The answer to WRITE.
    pub fn written(&mut self, bytes: u32) {
        self.u32(bytes).u32(0);
    }

    /// The answer to READDIR from offset 0: the file.
    pub fn directory(&mut self) {
        self.u64(FILE).u64(1).u32(NAME.len() as u32).u32(8);
        self.0.extend_from_slice(NAME.as_bytes());
        while !(self.0.len() - OUT_HEADER).is_multiple_of(8) {
            self.0.push(0);
        }
    }

    /// The answer to STATFS: a disk that is full.
    pub fn statistics(&mut self, size: u64) {
        self.u64(size / 4096).u64(0).u64(0).u64(1).u64(0);
        self.u32(4096).u32(255).u32(4096).u32(0);
        for _ in 0..6 {
            self.u32(0);
        }
    }
}

/// How long the kernel may cache attributes.
const VALID_SECONDS: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(operation: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&((IN_HEADER + body.len()) as u32).to_ne_bytes());
        bytes.extend_from_slice(&operation.to_ne_bytes());
        bytes.extend_from_slice(&7u64.to_ne_bytes());
        bytes.extend_from_slice(&FILE.to_ne_bytes());
        bytes.resize(IN_HEADER, 0);
        bytes.extend_from_slice(body);
        bytes
    }

    fn numbers(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn requests_are_read_as_the_kernel_lays_them_out() {
        let read = message(15, &numbers(&[0, 8192, 4096, 0, 0]));
        let asked = FuseRequest::parse(&read).unwrap();
        assert_eq!((asked.unique, asked.node), (7, FILE));
        assert_eq!(asked.asked, FuseOperation::Read { offset: 8192, length: 4096 });
        let mut body = numbers(&[0, 4096, 3, 0, 0]);
        body.extend_from_slice(b"abc");
        let write = message(16, &body);
        let expected = FuseOperation::Write { offset: 4096, data: b"abc" };
        assert_eq!(FuseRequest::parse(&write).unwrap().asked, expected);
        // A write that claims more data than it carries is rejected.
        body.pop();
        let cut = message(16, &body);
        assert_eq!(FuseRequest::parse(&cut).unwrap().asked, FuseOperation::Malformed);
        let hole = message(43, &numbers(&[0, 0, 1 << 20, 3]));
        assert_eq!(
            FuseRequest::parse(&hole).unwrap().asked,
            FuseOperation::Discard { offset: 0, length: 1 << 20 }
        );
        let name = message(1, b"disk\0");
        assert_eq!(
            FuseRequest::parse(&name).unwrap().asked,
            FuseOperation::Lookup { name: b"disk" }
        );
    }

    /// The kernel rejects answers of a wrong length, and the requests would hang.
    #[test]
    fn answers_have_the_lengths_that_the_kernel_expects() {
        let of = Attributes { node: FILE, size: 4096, owner: (0, 0) };
        let mut answer = FuseAnswer::default();
        let mut length = |fill: &dyn Fn(&mut FuseAnswer)| {
            fill(answer.clear());
            answer.finish(1, None).len() - OUT_HEADER
        };
        assert_eq!(length(&|a| a.init(0, u64::MAX, true)), 64);
        assert_eq!(length(&|a| a.entry(of)), 128);
        assert_eq!(length(&|a| a.attributes(of)), 104);
        assert_eq!(length(&|a| a.opened(true)), 16);
        assert_eq!(length(&|a| a.written(1)), 8);
        assert_eq!(length(&|a| a.statistics(4096)), 80);
        assert_eq!(length(&|a| a.directory()) % 8, 0);
    }

    proptest! {
        /// Random requests must be parsed or rejected: a panic would hang every client of the disk.
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = FuseRequest::parse(&bytes);
            for operation in 0..60 {
                let _ = FuseRequest::parse(&message(operation, &bytes));
            }
        }
    }
}

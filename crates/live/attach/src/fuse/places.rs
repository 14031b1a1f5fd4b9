//! The memory shared with the kernel for ring requests (linux/include/uapi/linux/fuse.h, `struct
//! fuse_uring_req_header`), and the commands for it.
//!
//! Invariants: a slot is accessed here only between a request and its answer, and by the kernel only between
//! an answer and the next request; registered memory is never freed, because the kernel tears a ring down
//! asynchronously.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::wire::OUT_HEADER;

/// The io_uring of a serving thread.
pub(crate) type ServerRing = IoUring<squeue::Entry128, cqueue::Entry>;

/// Commands of `enum fuse_uring_cmd`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Offset of the length in `struct io_uring_sqe`.
const SQE_LENGTH: usize = 24;

/// Identifies a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceOf {
    /// The processor.
    pub queue: u16,
    /// Its token in completions.
    pub token: u64,
}

/// `struct fuse_uring_req_header`.
#[derive(Debug)]
#[repr(C)]
struct Header {
    /// The header of the request, then of the answer.
    head: [u8; 128],
    arguments: [u8; 128],
    flags: u64,
    commit: u64,
    payload_size: u32,
    padding: u32,
    reserved: u64,
}

/// Room for one request and its answer.
#[derive(Debug)]
pub(crate) struct Place {
    header: NonNull<Header>,
    payload: NonNull<[u8]>,
    /// Header and payload, as passed to the kernel.
    vectors: &'static [libc::iovec; 2],
}

// SAFETY: the pointers are to memory of this slot, which lives forever and is used by its owner alone.
unsafe impl Send for Place {}

/// A ring of this many entries.
pub(crate) fn new_ring(entries: u32) -> std::io::Result<ServerRing> {
    IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(entries)
}

/// Pushes a command into a ring; a full ring is submitted first.
pub(crate) fn push(ring: &mut ServerRing, entry: &squeue::Entry128) -> std::io::Result<()> {
    // SAFETY: a command refers to memory of slots, which lives forever.
    while unsafe { ring.submission().push(entry) }.is_err() {
        ring.submit()?;
    }
    Ok(())
}

impl Place {
    /// A slot for this many bytes of data.
    pub fn new(bytes: usize) -> Self {
        let header = Header {
            head: [0; 128],
            arguments: [0; 128],
            flags: 0,
            commit: 0,
            payload_size: 0,
            padding: 0,
            reserved: 0,
        };
        let header = NonNull::from(Box::leak(Box::new(header)));
        let payload = NonNull::from(vec![0u8; bytes].leak());
        let vector = |at: *mut u8, length| libc::iovec { iov_base: at.cast(), iov_len: length };
        let vectors = Box::leak(Box::new([
            vector(header.as_ptr().cast(), size_of::<Header>()),
            vector(payload.as_ptr().cast(), payload.len()),
        ]));
        Self { header, payload, vectors }
    }

    fn header(&mut self) -> &mut Header {
        // SAFETY: it is leaked and exclusive to this slot, and the kernel does not access it until it is
        // answered (the module's invariant).
        unsafe { self.header.as_mut() }
    }

    /// The header, the arguments and the data of the request in it.
    pub fn request(&self) -> (&[u8], &[u8], &[u8]) {
        // SAFETY: as for `header`; nothing changes while these are borrowed.
        let (header, payload) = unsafe { (self.header.as_ref(), self.payload.as_ref()) };
        let length = (header.payload_size as usize).min(payload.len());
        (&header.head, &header.arguments, &payload[..length])
    }

    /// Space for this many bytes of an answer, at most the size of the payload.
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        // SAFETY: as in `header`.
        let payload = unsafe { self.payload.as_mut() };
        let bytes = bytes.min(payload.len());
        &mut payload[..bytes]
    }

    /// Hands the slot to the kernel for the first time.
    pub fn register(
        &mut self,
        ring: &mut ServerRing,
        fuse: &OwnedFd,
        of: PlaceOf,
    ) -> std::io::Result<()> {
        let vectors = self.vectors.as_ptr() as u64;
        self.command(ring, fuse, of, (REGISTER, vectors))
    }

    /// Answers its request with an error or this many bytes of data, and returns the slot to the kernel. The
    /// request ID is already in the answer's place.
    pub fn answer(
        &mut self,
        ring: &mut ServerRing,
        fuse: &OwnedFd,
        of: PlaceOf,
        (error, bytes): (Option<i32>, usize),
    ) -> std::io::Result<()> {
        let bytes = bytes.min(self.payload.len());
        let header = self.header();
        header.payload_size = bytes as u32;
        header.head[..4].copy_from_slice(&((OUT_HEADER + bytes) as u32).to_ne_bytes());
        header.head[4..8].copy_from_slice(&(-error.unwrap_or(0)).to_ne_bytes());
        self.command(ring, fuse, of, (COMMIT_AND_FETCH, 0))
    }

    fn command(
        &mut self,
        ring: &mut ServerRing,
        fuse: &OwnedFd,
        of: PlaceOf,
        (command, address): (u32, u64),
    ) -> std::io::Result<()> {
        // `struct fuse_uring_cmd_req`: flags, the request's ID, the CPU.
        let mut body = [0u8; 80];
        body[8..16].copy_from_slice(&self.header().commit.to_ne_bytes());
        body[16..18].copy_from_slice(&of.queue.to_ne_bytes());
        let built = opcode::UringCmd80::new(Fd(fuse.as_raw_fd()), command).cmd(body);
        let mut entry = built.addr(Some(address)).build().user_data(of.token);
        if command == REGISTER {
            let count = self.vectors.len() as u32;
            // SAFETY: an entry is a `struct io_uring_sqe` followed by 64 bytes (`repr(C)`); the length field
            // lies within it, and any value is valid.
            unsafe { (&raw mut entry).cast::<u8>().add(SQE_LENGTH).cast::<u32>().write(count) };
        }
        push(ring, &entry)
    }
}

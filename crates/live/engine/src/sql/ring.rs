//! Requests and answers of many connections through one io_uring: one system call for all that are ready, not
//! two for each.
//!
//! Invariant: the kernel uses a connection's memory only while its statement is in flight.

use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::squeue::Flags;
use io_uring::types::{Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use units::Nanos;

use crate::EngineError;

/// Marks the completion of a request, which comes only if it failed.
const IS_SEND: u64 = 1 << 32;

/// What came in for a connection.
pub(crate) struct Arrival {
    pub lane: usize,
    /// Number of bytes; 0 if the server closed the connection.
    pub count: Result<usize, Errno>,
}

/// The ring of one thread.
pub(crate) struct Ring {
    ring: IoUring,
    /// `[lane]`: why its request was not sent.
    not_sent: Vec<Option<Errno>>,
    /// Statements whose memory the kernel has.
    in_flight: usize,
}

/// A request and the memory for its answer.
pub(crate) type Exchange<'a> = (&'a [u8], &'a mut [u8]);

impl Ring {
    /// A ring for these sockets; `None` where the kernel is too old (before 6.1) or does not allow it, and in
    /// virtual time.
    pub fn new(sockets: &[BorrowedFd<'_>]) -> Option<Self> {
        let entries = u32::try_from(sockets.len() * 2).ok()?.next_power_of_two();
        let mut builder = IoUring::builder();
        let ring = builder.setup_single_issuer().setup_defer_taskrun().build(entries).ok()?;
        let descriptors: Vec<i32> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
        ring.submitter().register_files(&descriptors).ok()?;
        Some(Self { ring, not_sent: vec![None; sockets.len()], in_flight: 0 })
    }

    /// Sends a request, then receives into the memory for its answer.
    ///
    /// # Safety
    /// Both stay in place and unused until the connection's arrival.
    pub unsafe fn exchange(&mut self, lane: usize, (request, space): Exchange<'_>) {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let send = opcode::Send::new(Fixed(lane as u32), request.as_ptr(), request.len() as u32)
            .flags(flags)
            .build()
            .user_data(IS_SEND | lane as u64)
            .flags(Flags::IO_LINK | Flags::SKIP_SUCCESS);
        self.push(&send);
        // SAFETY: the caller's promise.
        unsafe { self.receive(lane, space) };
    }

    /// Receives more of an answer.
    ///
    /// # Safety
    /// The memory stays in place and unused until the connection's next arrival.
    pub unsafe fn receive(&mut self, lane: usize, space: &mut [u8]) {
        let receive =
            opcode::Recv::new(Fixed(lane as u32), space.as_mut_ptr(), space.len() as u32).build();
        self.push(&receive.user_data(lane as u64));
        self.in_flight += 1;
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) {
        // SAFETY: callers promise that the memory stays.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("invariant: two entries for each connection");
    }

    /// The next arrival that is there.
    pub fn next(&mut self) -> Option<Arrival> {
        loop {
            let end = self.ring.completion().next()?;
            let lane = (end.user_data() & !IS_SEND) as usize;
            let count = usize::try_from(end.result());
            let count = count.map_err(|_| Errno::from_raw_os_error(-end.result()));
            if end.user_data() & IS_SEND != 0 {
                self.not_sent[lane] = count.err();
                continue;
            }
            self.in_flight -= 1;
            // Without its request the answer was cancelled.
            let count = count.map_err(|error| self.not_sent[lane].take().unwrap_or(error));
            return Some(Arrival { lane, count });
        }
    }

    /// Sends what is queued, and waits for an arrival for at most `pause`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, pause: Nanos) -> Result<(), EngineError> {
        let failed = |error| EngineError::failed("client", "wait for results", error);
        const SECOND: u64 = 1_000_000_000;
        let pause = Timespec::new().sec(pause.get() / SECOND).nsec((pause.get() % SECOND) as u32);
        match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&pause)) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(()),
                _ => Err(failed(error)),
            },
        }
    }

    /// Waits until the kernel has no memory of any connection; their sockets were shut down.
    pub fn drain(&mut self) {
        while self.in_flight > 0 && self.wait(Nanos::from_millis(100)).is_ok() {
            while self.next().is_some() {}
        }
    }
}

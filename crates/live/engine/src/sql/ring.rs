//! Requests and answers of many connections through one io_uring: one system call for all that are ready, not
//! two for each.
//!
//! Invariant: the kernel uses a connection's memory only while its statement is in flight.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use io_uring::squeue::Flags;
use io_uring::types::{Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use units::Nanos;

use crate::EngineError;

/// Marks the completion of a request, which comes only if it failed.
const IS_SEND: u64 = 1 << 32;

/// Time limit for the kernel to give back the memory of connections that were shut down.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// What came in for a connection.
pub(crate) struct Arrival {
    pub lane: usize,
    /// Number of bytes; 0 if the server closed the connection.
    pub count: Result<usize, Errno>,
}

/// The ring of one thread.
pub(crate) struct Ring {
    ring: IoUring,
    /// `[lane]`: the kernel has its memory.
    in_flight: Vec<bool>,
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
        Some(Self { ring, in_flight: vec![false; sockets.len()] })
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
        self.in_flight[lane] = true;
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
            if !std::mem::take(&mut self.in_flight[lane]) {
                // The rest of a request that failed in two parts.
                continue;
            }
            let count = usize::try_from(end.result());
            let count = count.map_err(|_| Errno::from_raw_os_error(-end.result()));
            // A request that failed ends its statement: the kernel completes nothing that is linked to it.
            let count = match end.user_data() & IS_SEND != 0 {
                true => match count {
                    Err(error) if ![Errno::INTR, Errno::AGAIN].contains(&error) => Err(error),
                    _ => Err(Errno::PIPE),
                },
                false => count,
            };
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

    /// Sends what is queued, without waiting.
    ///
    /// # Errors
    /// The kernel's.
    pub fn submit(&mut self) -> Result<(), EngineError> {
        let sent = self.ring.submit().map(|_| ());
        sent.map_err(|error| EngineError::failed("client", "send requests", error))
    }

    /// Waits until the kernel has no memory of any connection, whose sockets were shut down; returns whether
    /// it has none.
    pub fn drain(&mut self) -> bool {
        let began = Instant::now();
        while self.in_flight.contains(&true) {
            if began.elapsed() > DRAIN_MAX || self.wait(Nanos::from_millis(100)).is_err() {
                return false;
            }
            while self.next().is_some() {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The ring of a socket, and the other end; nothing where the kernel has no ring.
    fn pair() -> Option<(Ring, UnixStream, UnixStream)> {
        let (own, other) = UnixStream::pair().expect("a pair");
        let ring = Ring::new(&[own.as_fd()])?;
        Some((ring, own, other))
    }

    fn arrival(ring: &mut Ring) -> Arrival {
        loop {
            if let Some(arrival) = ring.next() {
                return arrival;
            }
            ring.wait(Nanos::from_millis(100)).expect("it waits");
        }
    }

    /// A request to a server that is gone must end its statement: the client would wait for ever.
    #[test]
    fn a_request_that_cannot_be_sent_ends_its_statement() {
        let Some((mut ring, _own, other)) = pair() else { return };
        drop(other);
        let mut space = [0; 64];
        // SAFETY: both stay until the arrival.
        unsafe { ring.exchange(0, (b"request", &mut space)) };
        let Arrival { lane, count } = arrival(&mut ring);
        assert_eq!((lane, count), (0, Err(Errno::PIPE)));
        assert!(ring.drain());
    }

    #[test]
    fn an_answer_arrives_in_its_memory_and_an_abandoned_one_in_none() {
        let Some((mut ring, own, mut other)) = pair() else { return };
        let mut space = [0; 64];
        // SAFETY: both stay until the arrival.
        unsafe { ring.exchange(0, (b"request", &mut space)) };
        ring.submit().expect("it is sent");
        other.write_all(b"answer").expect("written");
        assert_eq!(arrival(&mut ring).count, Ok(6));
        assert_eq!(&space[..6], b"answer");
        // SAFETY: both stay until the ring is drained.
        unsafe { ring.exchange(0, (b"request", &mut space)) };
        own.shutdown(std::net::Shutdown::Read).expect("shut down");
        assert!(ring.drain());
        other.write_all(b"late").unwrap_or_default();
        assert_eq!(&space[..6], b"answer");
    }
}

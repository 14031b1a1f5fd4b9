//! Recordings of running databases: the file, where threads spent their time, and what other drives change.
//!
//! Invariants: no clock, no I/O; the parts of a thread's time sum to the recorded time.

#![forbid(unsafe_code)]

mod breakdown;
mod event;
mod format;
mod graph;
mod in_flight;
mod path;
mod predict;
mod replay;
mod segment;
mod timeline;

pub use breakdown::{Breakdown, Class, ClassTime, DriveLoad, Part, Parts, Requests, classes};
pub use event::{Call, Decoder, Encoder, Event, EventKind, FileKind, Io, SwitchOut, WokenBy};
pub use format::{
    Disk, EVENTS_MAX, FormatError, Header, Overhead, Process, Recording, SIZE_MAX, Thread,
};
pub use path::RequestPath;
pub use predict::{Gain, IDENTITY_MAX, Predictor};
pub use segment::{Activity, Point, Request, Segment, ThreadLine, Waiting, Wake, WakeSource};
pub use timeline::Timeline;

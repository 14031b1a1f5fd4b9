//! The library that is preloaded into a program to run it in virtual time (see `crosspoint-vtime`).
//!
//! It replaces functions of the C library. A replacement charges the CPU time since the last one, does the
//! real operation at once, and waits for its simulated time with the coordinator. Threads outside of the
//! simulation use the real function.
//!
//! Invariants: nothing here blocks in the kernel while it has the turn; CPU time inside the library is not
//! charged; `errno` is set as the program expects.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::missing_safety_doc, reason = "each function is one of the C library")]

mod calls;
mod children;
mod clock;
mod code;
mod descriptors;
mod dispatch;
mod files;
mod handlers;
mod maps;
mod net;
mod polling;
mod real;
mod regions;
mod shared_memory;
mod signal_files;
mod signals;
mod sockets;
mod start;
mod streams;
mod threads;
mod timers;
mod turn;

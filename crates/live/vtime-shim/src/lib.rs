//! The library that is preloaded into a program to run it in virtual time (see `crosspoint-vtime`).
//!
//! It replaces functions of the C library. A replacement charges the CPU time since the last one, does the
//! real thing at once, and asks the coordinator for the time that it takes. Threads that are not in the
//! simulation get the real function.
//!
//! Invariants: nothing here blocks in the kernel while it has the turn; CPU time inside of the library is not
//! charged; `errno` is what the program expects.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::missing_safety_doc, reason = "each function is one of the C library")]

mod calls;
mod children;
mod clock;
mod descriptors;
mod files;
mod maps;
mod real;
mod threads;
mod turn;

//! The used functions of RocksDB's C interface, from a library loaded at run time, or (feature `vendored`)
//! from the RocksDB built into this program.
//!
//! Invariant: the library stays loaded for the life of the process. Calling them is unsafe; `lib.rs` wraps
//! them.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

/// An object of RocksDB.
pub(crate) type Object = *mut c_void;
/// Where RocksDB stores an error message; null for success.
pub(crate) type Message = *mut *mut c_char;

macro_rules! functions {
    ($($name:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)+) => {
        /// The functions, by their names without `rocksdb_`.
        #[derive(Debug)]
        #[allow(non_snake_case, reason = "RocksDB's own names")]
        pub(crate) struct Api {
            _library: Option<Library>,
            /// File of the library.
            pub file: PathBuf,
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl Api {
            /// Finds every function in `library`.
            #[allow(non_snake_case, reason = "RocksDB's own names")]
            fn find(library: Library, file: PathBuf) -> Result<Self, String> {
                $(
                    // SAFETY: the type is that of rocksdb/c.h, unchanged from 5.x to 11.x.
                    let $name = unsafe {
                        *library
                            .get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                concat!("rocksdb_", stringify!($name), "\0").as_bytes(),
                            )
                            .map_err(|error| error.to_string())?
                    };
                )+
                Ok(Self { _library: Some(library), file, $($name,)+ })
            }

            /// The functions of the RocksDB that is part of this program.
            #[cfg(feature = "vendored")]
            pub fn vendored() -> Self {
                Self { _library: None, file: PathBuf::from(VENDORED), $($name: vendored::$name,)+ }
            }
        }

        #[cfg(feature = "vendored")]
        mod vendored {
            use super::*;
            use librocksdb_sys as _;

            unsafe extern "C" {
                $(
                    #[link_name = concat!("rocksdb_", stringify!($name))]
                    pub(super) fn $name($(_: $argument),*) $(-> $result)?;
                )+
            }
        }
    };
}

functions! {
    options_create() -> Object;
    options_destroy(Object);
    options_set_create_if_missing(Object, c_uchar);
    options_increase_parallelism(Object, c_int);
    options_set_compression(Object, c_int);
    options_set_write_buffer_size(Object, usize);
    get_options_from_string(Object, *const c_char, Object, Message);
    options_set_block_based_table_factory(Object, Object);
    block_based_options_create() -> Object;
    block_based_options_destroy(Object);
    block_based_options_set_block_cache(Object, Object);
    block_based_options_set_filter_policy(Object, Object);
    cache_create_lru(usize) -> Object;
    cache_destroy(Object);
    filterpolicy_create_bloom(f64) -> Object;
    open(Object, *const c_char, Message) -> Object;
    close(Object);
    readoptions_create() -> Object;
    readoptions_destroy(Object);
    writeoptions_create() -> Object;
    writeoptions_destroy(Object);
    writeoptions_set_sync(Object, c_uchar);
    writeoptions_disable_WAL(Object, c_int);
    get_pinned(Object, Object, *const c_char, usize, Message) -> Object;
    pinnableslice_value(Object, *mut usize) -> *const c_char;
    pinnableslice_destroy(Object);
    delete(Object, Object, *const c_char, usize, Message);
    writebatch_create() -> Object;
    writebatch_destroy(Object);
    writebatch_clear(Object);
    writebatch_put(Object, *const c_char, usize, *const c_char, usize);
    write(Object, Object, Object, Message);
    create_iterator(Object, Object) -> Object;
    iter_destroy(Object);
    iter_seek(Object, *const c_char, usize);
    iter_valid(Object) -> c_uchar;
    iter_next(Object);
    iter_key(Object, *mut usize) -> *const c_char;
    iter_value(Object, *mut usize) -> *const c_char;
    iter_get_error(Object, Message);
    flushoptions_create() -> Object;
    flushoptions_destroy(Object);
    flush(Object, Object, Message);
    compact_range(Object, *const c_char, usize, *const c_char, usize);
    set_perf_level(c_int);
    perfcontext_create() -> Object;
    perfcontext_destroy(Object);
    perfcontext_reset(Object);
    perfcontext_report(Object, c_uchar) -> *mut c_char;
    property_value(Object, *const c_char) -> *mut c_char;
    free(*mut c_void);
}

/// Name of the RocksDB that was built with this program.
pub(crate) const WORD: &str = "vendored";
/// Its version, written like a library file: librocksdb-sys 0.19.0.
#[cfg(feature = "vendored")]
const VENDORED: &str = "librocksdb.so.11.8.1 (vendored)";

/// File names used by distributions and builds, the plain one first.
const NAMES: [&str; 9] = [
    "librocksdb.so", "librocksdb.so.11", "librocksdb.so.10", "librocksdb.so.9.10",
    "librocksdb.so.8.9", "librocksdb.so.8", "librocksdb.so.7.8", "librocksdb.so.7",
    "librocksdb.so.6.11",
];

impl Api {
    /// Loads `path`, or the first library of a known name that the dynamic linker finds.
    ///
    /// # Errors
    /// The attempts with their messages.
    pub fn load(path: Option<&Path>) -> Result<Self, String> {
        if path == Some(Path::new(WORD)) {
            return Self::built_in();
        }
        let mut said = Vec::new();
        let names = match path {
            Some(path) => vec![path.to_owned()],
            None => NAMES.iter().map(PathBuf::from).collect(),
        };
        for name in names {
            // The dynamic linker would wait for a writer of a pipe.
            let is_path = name.components().count() > 1;
            if is_path && std::fs::metadata(&name).is_ok_and(|facts| !facts.is_file()) {
                said.push(format!("{}: not a file", name.display()));
                continue;
            }
            // SAFETY: RocksDB's initialisers only set up its own tables; there is nothing to uphold.
            match unsafe { Library::new(&name) } {
                Ok(library) => {
                    let file = loaded_file().unwrap_or_else(|| name.clone());
                    return Self::find(library, file);
                }
                Err(error) => said.push(format!("{}: {error}", name.display())),
            }
        }
        let last = said.pop().unwrap_or_default();
        let asked = if path.is_some() { "" } else { " (and under other names)" };
        Err(format!("{last}{asked}"))
    }

    #[cfg(feature = "vendored")]
    fn built_in() -> Result<Self, String> {
        Ok(Self::vendored())
    }

    #[cfg(not(feature = "vendored"))]
    fn built_in() -> Result<Self, String> {
        Err("this program was built without it; cargo build --release --features rocksdb-vendored"
            .into())
    }

    /// Copies and frees a string of RocksDB; empty for null.
    ///
    /// # Safety
    /// `text` is null or a string that RocksDB allocated, with no other owner.
    pub unsafe fn take(&self, text: *mut c_char) -> String {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: RocksDB's strings end with a zero.
        let words = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: allocated by RocksDB, not used again.
        unsafe { (self.free)(text.cast()) };
        words
    }
}

/// The file that this process has mapped as RocksDB.
fn loaded_file() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.filter(|path| path.contains("librocksdb")).map(PathBuf::from).next()
}

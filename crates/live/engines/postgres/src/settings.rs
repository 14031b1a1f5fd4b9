//! Server settings that a study may use.
//!
//! A server is private because of its data, socket and log paths, its accounts, libraries and commands.
//! Invariants: settings that affect those are refused; values are never paths or commands. Allowed families
//! and names are listed; others are refused.

/// Families of settings: of writing, vacuuming, the planner, memory and input/output.
const FAMILIES: &str = "autovacuum_ bgwriter_ checkpoint_ commit_ cpu_ enable_ io_ parallel_ vacuum_ \
    wal_ track_ max_parallel_ deadlock_ from_collapse geqo_ jit_";

/// Single settings.
const NAMES: &str = "autovacuum geqo jit backend_flush_after constraint_exclusion cursor_tuple_fraction \
    default_statistics_target effective_cache_size effective_io_concurrency hash_mem_multiplier huge_pages \
    join_collapse_limit logical_decoding_work_mem maintenance_io_concurrency \
    maintenance_work_mem max_locks_per_transaction max_pred_locks_per_transaction max_worker_processes \
    min_parallel_table_scan_size min_parallel_index_scan_size min_wal_size plan_cache_mode random_page_cost \
    recursive_worktable_factor seq_page_cost temp_buffers work_mem";

/// Members of the families that are options or keys of a job, or not for studies.
const OTHERWISE: [(&str, &str); 8] = [
    ("checkpoint_timeout", "use the option checkpoint_timeout"),
    ("wal_level", "use the option wal_level"),
    ("wal_consistency_checking", "it is for developers of the server"),
    ("wal_debug", "it is for developers of the server"),
    ("jit_provider", "libraries are set by Crosspoint"),
    ("wal_keep_size", "a private server has no replicas"),
    ("wal_sender_timeout", "a private server has no replicas"),
    ("wal_receiver_", "a private server has no replicas"),
];

/// Settings that are keys or options of a job.
const OPTIONS: [(&str, &str); 5] = [
    ("shared_buffers", "use the option buffer_pool"),
    ("max_wal_size", "use the option max_wal_size"),
    ("full_page_writes", "use the option full_page_writes"),
    ("synchronous_commit", "use the key durability"),
    ("fsync", "use the key durability"),
];

/// Checks whether a study may set `name=value` on a private server.
///
/// # Errors
/// The reason, with what is allowed.
pub(crate) fn check_setting(pair: &str) -> Result<(), String> {
    let shown: String = pair.chars().take(100).collect();
    let refuse = |why: &str| Err(format!("setting `{shown}`: {why}"));
    let (name, value) = split(pair)?;
    check_value(value).map_err(|why| format!("setting `{shown}`: {why}"))?;
    let otherwise = OTHERWISE.iter().find(|(start, _)| name.starts_with(start));
    let option = OPTIONS.iter().find(|(option, _)| *option == name);
    if let Some((_, why)) = otherwise.or(option) {
        return refuse(why);
    }
    if name.contains("command") || name.contains("librar") {
        return refuse("commands and libraries are set by Crosspoint");
    }
    let family = FAMILIES.split_whitespace().any(|family| name.starts_with(family));
    if family || NAMES.split_whitespace().any(|allowed| allowed == name) {
        return Ok(());
    }
    refuse(
        "not allowed in a study; allowed: variables of the write-ahead log, checkpoints, vacuum, the \
         planner, memory and input/output",
    )
}

/// The name, in lower case, and the value of a pair.
pub(crate) fn split(pair: &str) -> Result<(String, &str), String> {
    let shown: String = pair.chars().take(100).collect();
    let form = || format!("`{shown}` is not a setting; allowed: name=value;name=value");
    let (name, value) = pair.split_once('=').ok_or_else(form)?;
    let name = name.trim_matches(' ').to_ascii_lowercase();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
        return Err(form());
    }
    Ok((name, value.trim_matches(' ')))
}

pub(crate) fn check_value(value: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || " ._-+%".contains(c);
    if value.is_empty() || value.len() > 200 || !value.chars().all(plain) {
        return Err("a value is a number or a word, never a path");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A study from the network must not open the server, run commands, or put its files elsewhere.
    #[test]
    fn what_makes_a_server_private_is_not_to_be_set() {
        for pair in [
            "data_directory=x",
            "hba_file=x",
            "ident_file=x",
            "listen_addresses=*",
            "port=1",
            "unix_socket_directories=x",
            "archive_command=x",
            "archive_mode=on",
            "restore_command=x",
            "shared_preload_libraries=x",
            "local_preload_libraries=x",
            "session_preload_libraries=x",
            "dynamic_library_path=x",
            "jit_provider=x",
            "ssl=on",
            "log_directory=x",
            "logging_collector=on",
            "fsync=off",
            "shared_buffers=1GB",
            "max_connections=5",
            "external_pid_file=x",
            "temp_tablespaces=x",
            "wal_level=minimal",
            "work_mem=/etc",
            "work_mem=1'",
            "work_mem",
            "statement_timeout=1",
            "lock_timeout=1",
            "default_transaction_read_only=on",
            "=1",
            "work_mem=1\nfsync=off",
            "\nwork_mem=1",
            "ARCHIVE_COMMAND=x",
        ] {
            assert!(check_setting(pair).is_err(), "{pair}");
        }
        for pair in [
            "work_mem=64MB",
            "wal_compression=lz4",
            "commit_delay=100",
            "io_method=io_uring",
            "effective_io_concurrency=200",
            "checkpoint_completion_target=0.5",
            "autovacuum=off",
            "huge_pages=try",
            "bgwriter_delay=10 ms",
        ] {
            assert_eq!(check_setting(pair), Ok(()), "{pair}");
        }
    }
}

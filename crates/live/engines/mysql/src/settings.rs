//! Server settings that a study may use.
//!
//! A server is private because of its data, socket and log paths, its accounts and plugins. Invariants:
//! settings that affect those are refused, also abbreviated (servers accept unique prefixes) and under a
//! prefix; values are never paths. Allowed families and names are listed; others are refused.

/// Prefixes of names that the server strips.
const TAKEN_OFF: [&str; 5] = ["loose_", "skip_", "enable_", "disable_", "maximum_"];

/// Families of settings of engines and caches.
const FAMILIES: &str = "innodb_ aria_ key_cache_ query_cache_ table_open_cache table_definition_cache \
    thread_ optimizer_ performance_schema join_ sort_ binlog_cache_ net_buffer_";

/// Single settings.
const NAMES: &str = "autocommit back_log concurrent_insert eq_range_index_dive_limit histogram_size \
    histogram_type key_buffer_size lock_wait_timeout low_priority_updates max_allowed_packet \
    max_heap_table_size metadata_locks_hash_instances mrr_buffer_size read_buffer_size \
    read_rnd_buffer_size tmp_memory_table_size tmp_table_size transaction_isolation use_stat_tables";

/// Members of the families that name a path.
const PLACES: &str = "innodb_data_home_dir innodb_data_file_path innodb_temp_data_file_path \
    innodb_temp_tablespaces_dir innodb_log_group_home_dir innodb_log_arch_dir innodb_undo_directory \
    innodb_tmpdir innodb_directories innodb_doublewrite_dir innodb_redo_log_archive_dirs \
    innodb_buffer_pool_filename innodb_ft_server_stopword_table aria_log_dir_path";

/// Members of the families that are options of a job.
const OPTIONS: [(&str, &str); 6] = [
    ("innodb_page_size", "use the option page_size"),
    ("innodb_buffer_pool_size", "use the option buffer_pool"),
    ("innodb_flush_log_at_trx_commit", "use the key durability"),
    ("innodb_doublewrite", "use the option doublewrite"),
    ("innodb_flush_method", "use the option flush_method"),
    ("innodb_log_file_size", "use the option redo_log"),
];

/// Checks whether a study may set `name=value` on a private server.
///
/// # Errors
/// The reason, with what is allowed.
pub(crate) fn check_setting(pair: &str) -> Result<(), String> {
    let shown: String = pair.chars().take(100).collect();
    let form = || format!("`{shown}` is not a setting; allowed: name=value;name=value");
    let (name, value) = pair.split_once('=').ok_or_else(form)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(form());
    }
    let mut name = name.to_ascii_lowercase().replace('-', "_");
    while let Some(rest) = TAKEN_OFF.iter().find_map(|prefix| name.strip_prefix(prefix)) {
        name = rest.to_owned();
    }
    let refuse = |why: &str| Err(format!("setting `{shown}`: {why}"));
    check_value(value).map_err(|why| format!("setting `{shown}`: {why}"))?;
    let family = FAMILIES.split(' ').any(|family| name.starts_with(family));
    if !family && !NAMES.split(' ').any(|allowed| allowed == name) {
        return refuse(
            "not allowed in a study; allowed: variables of InnoDB, Aria, caches, buffers, threads, the \
             optimizer, isolation and packets",
        );
    }
    // Servers accept unique prefixes of names.
    if PLACES.split(' ').any(|place| place.starts_with(&name)) {
        return refuse("paths are set by Crosspoint");
    }
    match OPTIONS.iter().find(|(option, _)| option.starts_with(&name)) {
        Some((_, why)) => refuse(why),
        None => Ok(()),
    }
}

pub(crate) fn check_value(value: &str) -> Result<(), &'static str> {
    let path = value.contains(['/', '\\']);
    if path || value.chars().any(char::is_control) || value.is_empty() || value.len() > 200 {
        return Err("a value is a number or a word, never a path");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A study from the network must not open the server, nor put its files elsewhere.
    #[test]
    fn what_makes_a_server_private_is_not_to_be_set() {
        for pair in [
            "datadir=/x", "datadi=x", "socket=x", "user=root", "init-file=x", "init_connect=x",
            "plugin-dir=x", "plugin_load_add=x", "loose-plugin-load=x", "tmpdir=x", "port=1",
            "bind-address=0.0.0.0", "skip-grant-tables=1", "loose_skip_grant_tables=1",
            "secure-file-priv=", "log-error=x", "general_log_file=x", "slow_query_log_file=x",
            "log_bin=x", "innodb_data_home_dir=x", "innodb-data-home=x", "INNODB_UNDO_DIR=x",
            "innodb_tmp=x", "aria-log-dir-path=x", "innodb_buffer_pool_size=1",
            "innodb_io_capacity=/etc", "innodb_io_capacity", "=1",
        ] {
            assert!(check_setting(pair).is_err(), "{pair}");
        }
        for pair in [
            "innodb_io_capacity=2000",
            "innodb-flush-neighbors=1",
            "skip_innodb_adaptive_hash_index=1",
            "thread_handling=pool-of-threads",
            "tmp_table_size=64M",
            "innodb_no_such_thing=1",
            "innodb_log_buffer_size=16M",
        ] {
            assert_eq!(check_setting(pair), Ok(()), "{pair}");
        }
    }
}

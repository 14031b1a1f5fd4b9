//! Any text as a DSN, as a listening address and as server settings: no accepted text names our own files.
const OURS: [&str; 9] = [
    "datadir", "socket", "init_file", "plugin", "tmpdir", "secure", "skip_grant", "bind_address",
    "general_log",
];

const POSTGRES: [&str; 13] = [
    "data_directory", "hba_file", "ident_file", "listen_addresses", "unix_socket", "archive_",
    "restore_", "shared_preload", "session_preload", "local_preload", "dynamic_library",
    "jit_provider", "log_",
];

pub fn run(text: &str) {
    if let Ok(target) = engine_mysql::target_of(text) {
        assert!(target.database.is_some());
    }
    if let Ok(target) = engine_postgres::target_of(text) {
        assert!(target.database.is_some());
    }
    let _ = engine::Listen::parse(text);
    for pair in text.split(';') {
        if engine_mysql::parsing::setting(pair).is_ok() {
            let name = pair.split('=').next().unwrap_or_default().to_lowercase().replace('-', "_");
            assert!(!OURS.iter().any(|ours| name.starts_with(ours)), "{pair}");
            assert!(!pair.contains('/') && !pair.contains('\n'), "{pair}");
        }
        if engine_postgres::parsing::setting(pair).is_ok() {
            let name = pair.split('=').next().unwrap_or_default().trim().to_lowercase();
            assert!(!name.contains("command") && !name.contains("librar"), "{pair}");
            assert!(!POSTGRES.iter().any(|ours| name.starts_with(ours)), "{pair}");
            assert!(!["/", "'", "\n"].iter().any(|no| pair.contains(no)), "{pair}");
        }
    }
}

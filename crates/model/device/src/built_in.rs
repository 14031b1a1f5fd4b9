//! The profiles that ship, as the texts of their files.
//!
//! Invariant: every file of `devices/` is here (tested where files can be read). What it is not: a search
//! path; a profile that is not built in is a file.

/// A profile by the name of its file.
macro_rules! profiles {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../devices/", $name, ".toml")))),+]
    };
}

/// `(name, text)` of each.
pub const BUILT_IN: &[(&str, &str)] = profiles![
    "900p-in-2-vms",
    "900p-in-4-vms",
    "900p-in-6-vms",
    "900p-in-vm",
    "aws-gp3",
    "aws-io2-bx",
    "cas-p4800x-over-raid5-s3520",
    "hdd-7200",
    "intel-900p",
    "intel-905p",
    "intel-p3608",
    "intel-p3608-one-controller",
    "intel-p3700",
    "intel-p4500",
    "intel-p4800x",
    "intel-p5800x",
    "intel-s3510",
    "intel-s3520",
    "micron-9100-max",
    "p4500-over-nvmeof-rdma",
    "p4800x-over-iscsi",
    "p4800x-over-nvmeof-rdma",
    "p4800x-over-nvmeof-tcp",
    "page-cache-over-s3510",
    "raid5-3x-s3520",
    "ram-disk",
    "ram-disk-in-vm",
    "s3510-in-vm",
    "samsung-860-qvo",
    "samsung-970-pro",
    "samsung-980-pro",
];

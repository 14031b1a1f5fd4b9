//! The texts of the built-in profiles.
//!
//! Invariant: every file of `devices/` is included (tested where files can be read).

/// A profile, named by its file.
macro_rules! profiles {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../devices/", $name, ".toml")))),*]
    };
}

/// `(name, text)` of each.
pub const BUILT_IN: &[(&str, &str)] = profiles! {
    "900p-in-2-vms" "900p-in-4-vms" "900p-in-6-vms" "900p-in-vm" "aws-gp3" "aws-gp3-16k"
    "aws-i4i-4xlarge" "aws-io2-bx" "azure-premium-ssd-v2" "cas-p4800x-over-raid5-s3520"
    "cas-p4800x-over-raid5-s3520-race" "crucial-t700" "gcp-hyperdisk-balanced" "gcp-local-ssd"
    "gcp-pd-ssd" "hdd-7200" "instant" "intel-900p" "intel-905p" "intel-p3608" "intel-p3608-one-controller"
    "intel-p3700" "intel-p4500" "intel-p4800x" "intel-p5800x" "intel-s3510" "intel-s3520" "kioxia-cm7-r"
    "micron-7450-max" "micron-7450-pro" "micron-9100-max" "micron-9550-max" "p4500-over-nvmeof-rdma"
    "p4800x-over-iscsi" "p4800x-over-nvmeof-rdma" "p4800x-over-nvmeof-tcp" "page-cache-over-s3510"
    "raid5-3x-s3520" "ram-disk" "ram-disk-in-vm" "s3510-in-vm" "samsung-860-qvo" "samsung-970-pro"
    "samsung-980-pro" "samsung-990-pro" "samsung-pm1743" "samsung-pm9a3" "skhynix-pe8110"
    "solidigm-d5-p5336" "solidigm-d7-p5520" "solidigm-d7-p5810" "solidigm-d7-ps1010"
    "solidigm-d7-ps1030" "wd-sn861"
};

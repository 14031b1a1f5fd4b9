//! Device of a stack, as text in the study.
//!
//! Invariant: the text form parses back.

/// Device of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceName {
    /// A temporary file.
    File,
    /// A device model of that name.
    Model(String),
    /// Block devices at those paths, one or more; operations are spread over them.
    Paths(Vec<String>),
}

impl DeviceName {
    /// The text form, as in the study.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::File => "file".into(),
            Self::Model(name) => format!("model:{name}"),
            Self::Paths(paths) => paths.join(","),
        }
    }
}

impl std::str::FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("model:")) {
            ("file", _) => Ok(Self::File),
            (_, Some(name)) if !name.is_empty() => Ok(Self::Model(name.into())),
            _ if text.split(',').all(|path| path.starts_with('/')) => {
                Ok(Self::Paths(text.split(',').map(str::to_owned).collect()))
            }
            _ => Err(format!(
                "`{text}` is not a device; allowed: `file`, `model:NAME`, or the absolute paths of block \
                 devices, separated by commas"
            )),
        }
    }
}

units::text_serde!(
    DeviceName,
    text,
    "^(file|model:.+|/.+)$",
    "`file`, `model:NAME`, or the absolute paths of block devices"
);

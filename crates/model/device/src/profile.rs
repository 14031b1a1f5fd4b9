//! Device profiles: the constants of a model with their sources, and the published figures that it is
//! compared with.
//!
//! Invariants: unknown keys are errors; every constant is tagged as measured, from a datasheet, from a paper,
//! fitted or assumed.

use std::cell::Cell;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;
use units::{Bytes, Nanos};

use crate::cache::CacheParameters;
use crate::cloud::CloudParameters;
use crate::flow::FlowParameters;
use crate::hdd::HddParameters;
use crate::hop::HopParameters;
use crate::nand::NandParameters;
use crate::published::{Acceptance, Phenomenon};
use crate::raid::RaidParameters;
use crate::ram::RamParameters;
use crate::xpoint::XPointParameters;

/// The constants, by kind of model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Parameters {
    /// `[xpoint]`
    XPoint(Box<XPointParameters>),
    /// `[nand]`
    Nand(Box<NandParameters>),
    /// `[ram]`
    Ram(RamParameters),
    /// `[hdd]`
    Hdd(Box<HddParameters>),
    /// `[cloud]`
    Cloud(Box<CloudParameters>),
    /// `[flow]`: a device described by measurements.
    Flow(Box<FlowParameters>),
    /// `[raid]`, and its members.
    Raid(Box<RaidParameters>, Vec<Profile>),
    /// `[cache]`, the fast and the slow device.
    Cache(Box<CacheParameters>, Box<(Profile, Profile)>),
    /// `[hop]`, and the device behind it.
    Hop(Box<HopParameters>, Box<Profile>),
}

impl Parameters {
    /// Name of this kind of model.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::XPoint(_) => "3D XPoint".into(),
            Self::Nand(_) => "NAND flash".into(),
            Self::Ram(_) => "RAM".into(),
            Self::Hdd(_) => "disk drive".into(),
            Self::Cloud(_) => "cloud volume".into(),
            Self::Flow(_) => "measured".into(),
            Self::Raid(p, members) => format!("RAID {} of {}", p.level.value, members.len()),
            Self::Cache(..) => "cache".into(),
            Self::Hop(..) => "virtualization or fabric layer".into(),
        }
    }

    /// Why the cost of flushes and FUA writes is unknown; `None` if it is known.
    #[must_use]
    pub fn unknown_flush(&self) -> Option<&'static str> {
        match self {
            Self::Nand(p) if p.write_cache.is_none() => {
                Some("its profile does not set `write_cache`")
            }
            Self::Flow(p) if p.flushes.is_none() => Some("it was measured without flushes"),
            _ => self.below().into_iter().find_map(|(_, device)| device.parameters.unknown_flush()),
        }
    }

    /// Devices below, with their roles.
    #[must_use]
    pub fn below(&self) -> Vec<(&'static str, &Profile)> {
        match self {
            Self::Raid(_, members) => members.iter().map(|member| ("member", member)).collect(),
            Self::Cache(_, both) => vec![("fast", &both.0), ("slow", &both.1)],
            Self::Hop(_, device) => vec![("device", device)],
            _ => Vec::new(),
        }
    }
}

/// A profile: a device that can be modelled.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name in studies, after `model:`.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Addressable bytes.
    pub capacity: Bytes,
    /// What the model does not cover.
    pub not_covered: String,
    /// The constants.
    pub parameters: Parameters,
    /// Jobs that the model is compared with.
    pub acceptance: Vec<Acceptance>,
    /// Results across several jobs.
    pub phenomena: Vec<Phenomenon>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    name: String,
    title: String,
    capacity: Bytes,
    not_covered: String,
    xpoint: Option<XPointParameters>,
    nand: Option<NandParameters>,
    ram: Option<RamParameters>,
    hdd: Option<HddParameters>,
    cloud: Option<CloudParameters>,
    flow: Option<FlowParameters>,
    raid: Option<RaidParameters>,
    cache: Option<CacheParameters>,
    hop: Option<HopParameters>,
    #[serde(default)]
    acceptance: Vec<Acceptance>,
    #[serde(default)]
    phenomenon: Vec<Phenomenon>,
}

/// Why a profile is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Not TOML, an unknown key, or a wrong unit; the text points at the place.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// Well-formed but not a device.
    #[error("profile `{name}`: {reason}")]
    Impossible {
        /// Name in the file.
        name: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
}

/// Returns the text of the profile of that name.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Version of the file format.
const SCHEMA: u32 = 1;
/// Characters of a name that an error repeats.
const NAME_SHOWN: usize = 100;
/// Maximum nesting of layers.
const DEPTH_MAX: u32 = 4;
/// Maximum devices in all layers together.
const DEVICES_MAX: u32 = 256;
/// Maximum number of concurrent parts of a device: each takes memory in its model.
const PARTS_MAX: u64 = 65_536;
/// Maximum requests in flight. NVMe allows 65,535 queues of 65,536 entries, but no device accepts as many.
const IN_FLIGHT_MAX: u64 = 1 << 20;

impl Profile {
    /// The device as seen by a single client thread, if measured separately.
    #[must_use]
    pub fn of_one_thread(&self) -> Option<Self> {
        let Parameters::Flow(flow) = &self.parameters else { return None };
        let alone = flow.alone.clone()?;
        Some(Self { parameters: Parameters::Flow(alone), ..self.clone() })
    }

    /// Parses a profile without layers.
    ///
    /// # Errors
    /// [`ProfileError`] with the place or the reason.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        Self::parse_with(text, &|name| Err(format!("`{name}` cannot be loaded here")))
    }

    /// Parses a profile whose layers are found by `lookup`.
    ///
    /// # Errors
    /// [`ProfileError`] with the place or the reason, also for a layer.
    pub fn parse_with(text: &str, lookup: Lookup<'_>) -> Result<Self, ProfileError> {
        Self::parse_at(text, lookup, (0, &Cell::new(0)))
    }

    fn parse_at(
        text: &str,
        lookup: Lookup<'_>,
        (depth, devices): (u32, &Cell<u32>),
    ) -> Result<Self, ProfileError> {
        units::check_toml_size(text)
            .map_err(|reason| ProfileError::Impossible { name: "file".into(), reason })?;
        let file: File = toml::from_str(text)?;
        let endless = toml::from_str::<toml::Value>(text).ok().and_then(|value| endless(&value));
        let name: String = file.name.chars().take(NAME_SHOWN).collect();
        let refuse = |reason: String| ProfileError::Impossible { name: name.clone(), reason };
        let words =
            [("name", &file.name), ("title", &file.title), ("not_covered", &file.not_covered)];
        for (key, words) in words {
            if words.chars().any(|c| c.is_control() && c != '\n') || words.len() > 4000 {
                return Err(refuse(format!("`{key}` is too long or holds control characters")));
            }
        }
        if let Some(time) = endless {
            return Err(refuse(format!("a time of {time}; allowed: at most a day")));
        }
        devices.set(devices.get() + 1);
        if devices.get() > DEVICES_MAX {
            return Err(refuse(format!("more than {DEVICES_MAX} devices in its layers")));
        }
        if file.schema != SCHEMA {
            return Err(refuse(format!("schema {} is unknown; allowed: {SCHEMA}", file.schema)));
        }
        if depth > DEPTH_MAX {
            return Err(refuse(format!(
                "more than {DEPTH_MAX} layers, or a profile within itself"
            )));
        }
        let below = |name: &String| {
            let text = lookup(name).map_err(&refuse)?;
            Self::parse_at(&text, lookup, (depth + 1, devices))
        };
        let mut found = Vec::new();
        found.extend(file.xpoint.map(|p| Parameters::XPoint(Box::new(p))));
        found.extend(file.nand.map(|p| Parameters::Nand(Box::new(p))));
        found.extend(file.ram.map(Parameters::Ram));
        found.extend(file.hdd.map(|p| Parameters::Hdd(Box::new(p))));
        found.extend(file.cloud.map(|p| Parameters::Cloud(Box::new(p))));
        found.extend(file.flow.map(|p| Parameters::Flow(Box::new(p))));
        if let Some(raid) = file.raid {
            let members: Result<Vec<Self>, _> = raid.devices.iter().map(below).collect();
            found.push(Parameters::Raid(Box::new(raid), members?));
        }
        if let Some(cache) = file.cache {
            let both = (below(&cache.fast)?, below(&cache.slow)?);
            found.push(Parameters::Cache(Box::new(cache), Box::new(both)));
        }
        if let Some(hop) = file.hop {
            let device = below(&hop.device)?;
            found.push(Parameters::Hop(Box::new(hop), Box::new(device)));
        }
        let kinds = "[xpoint], [nand], [ram], [hdd], [cloud], [flow], [raid], [cache] and [hop]";
        let parameters = match (found.pop(), found.is_empty()) {
            (Some(one), true) => one,
            _ => return Err(refuse(format!("needs exactly one of {kinds}"))),
        };
        let profile = Self {
            name: file.name,
            title: file.title,
            capacity: file.capacity,
            not_covered: file.not_covered,
            parameters,
            acceptance: file.acceptance,
            phenomena: file.phenomenon,
        };
        profile.check()?;
        Ok(profile)
    }

    /// Checks that constants and published figures are possible; `parse` has already done this.
    ///
    /// # Errors
    /// [`ProfileError::Impossible`] with the first reason.
    pub fn check(&self) -> Result<(), ProfileError> {
        let reason = impossible(&self.parameters, self.capacity)
            .or_else(|| self.acceptance.iter().find_map(|job| job.impossible(self.capacity)))
            .or_else(|| self.phenomena.iter().find_map(Phenomenon::impossible));
        match reason {
            Some(reason) => Err(ProfileError::Impossible {
                name: self.name.chars().take(NAME_SHOWN).collect(),
                reason,
            }),
            None => Ok(()),
        }
    }

    /// The text of the profile's file, which [`parse_with`](Self::parse_with) reads back.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("strings, numbers, lists and tables with names")
    }
}

/// Members of layers are written as their names, as in the file.
impl Serialize for Profile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut file = serializer.serialize_struct("Profile", 8)?;
        file.serialize_field("schema", &SCHEMA)?;
        file.serialize_field("name", &self.name)?;
        file.serialize_field("title", &self.title)?;
        file.serialize_field("capacity", &self.capacity)?;
        file.serialize_field("not_covered", &self.not_covered)?;
        match &self.parameters {
            Parameters::XPoint(p) => file.serialize_field("xpoint", p)?,
            Parameters::Nand(p) => file.serialize_field("nand", p)?,
            Parameters::Ram(p) => file.serialize_field("ram", p)?,
            Parameters::Hdd(p) => file.serialize_field("hdd", p)?,
            Parameters::Cloud(p) => file.serialize_field("cloud", p)?,
            Parameters::Flow(p) => file.serialize_field("flow", p)?,
            Parameters::Raid(p, _) => file.serialize_field("raid", p)?,
            Parameters::Cache(p, _) => file.serialize_field("cache", p)?,
            Parameters::Hop(p, _) => file.serialize_field("hop", p)?,
        }
        file.serialize_field("acceptance", &self.acceptance)?;
        file.serialize_field("phenomenon", &self.phenomena)?;
        file.end()
    }
}

/// Returns a time that is too long; near the end of the clock's range nothing would complete.
fn endless(value: &toml::Value) -> Option<String> {
    const LONGEST: Nanos = Nanos::from_secs(86_400);
    match value {
        toml::Value::String(text) => {
            let time = text.parse::<Nanos>().ok()?;
            (time > LONGEST).then(|| text.chars().take(40).collect())
        }
        toml::Value::Array(all) => all.iter().find_map(endless),
        toml::Value::Table(table) => table.iter().find_map(|(_, one)| endless(one)),
        _ => None,
    }
}

/// Returns why constants are impossible.
fn impossible(parameters: &Parameters, capacity: Bytes) -> Option<String> {
    let nonzero = |pairs: &[(&str, u64)]| {
        let zero = pairs.iter().find(|(_, value)| *value == 0);
        zero.map(|(name, _)| format!("`{name}` must be above 0"))
    };
    if let Some(reason) = nonzero(&[("capacity", capacity.get())]) {
        return Some(reason);
    }
    if let Some(reason) = too_many(parameters) {
        return Some(reason);
    }
    match parameters {
        Parameters::XPoint(p) => {
            if let Some(reason) = p.impossible() {
                return Some(reason);
            }
            nonzero(&[
                ("serial_time", p.serial_time.value.get()),
                ("serial_time_write", p.serial_time_write.value.get()),
                ("channels", u64::from(p.channels.value)),
            ])
        }
        Parameters::Nand(p) => {
            if let Some(reason) = p.impossible(capacity) {
                return Some(reason);
            }
            nonzero(&[
                ("max_in_flight", u64::from(p.max_in_flight.value)),
                ("commands_inside", p.commands_inside.as_ref().map_or(1, |most| most.value.into())),
                ("read_units", u64::from(p.read_units.value)),
                ("channels", u64::from(p.channels.value)),
                ("read_time", p.read_time.value.get()),
                ("flash_page", p.flash_page.value.get()),
                ("programs_per_erase", u64::from(p.programs_per_erase.value)),
                ("program_units", u64::from(p.program_units.value)),
                ("program_size", p.program_size.value.get()),
                ("program_time", p.program_time.value.get()),
            ])
        }
        Parameters::Ram(p) => nonzero(&[("serial_time", p.serial_time.value.get())]),
        Parameters::Hdd(p) => {
            if p.seek_min.value > p.seek_max.value {
                return Some("`seek_min` must not be longer than `seek_max`".into());
            }
            nonzero(&[
                ("rotation_time", p.rotation_time.value.get()),
                ("track_size", p.track_size.value.get()),
                ("transfer_time", p.transfer_time.value.get()),
                ("max_in_flight", u64::from(p.max_in_flight.value)),
            ])
        }
        Parameters::Cloud(p) => {
            if !(0.0..=3.0).contains(&p.latency_sigma.value) {
                return Some("`latency_sigma` must be a number from 0 to 3".into());
            }
            if p.price.as_ref().is_some_and(|price| !price.is_possible()) {
                return Some("a `price` must be a number from 0".into());
            }
            nonzero(&[
                ("operations", p.operations.value.get()),
                ("operation_size", p.operation_size.value.get()),
                ("bandwidth", p.bandwidth.value.get()),
                ("latency_median", p.latency_median.value.get()),
            ])
        }
        Parameters::Flow(p) => p.impossible(),
        Parameters::Raid(..) | Parameters::Cache(..) | Parameters::Hop(..) => {
            impossible_layer(parameters, capacity)
        }
    }
}

/// Returns counts that are too large.
fn too_many(parameters: &Parameters) -> Option<String> {
    let above = |most: u64, pairs: &[(&str, u64)]| {
        let found = pairs.iter().find(|(_, value)| *value > most);
        found.map(|(name, value)| format!("`{name}` is {value}; allowed: at most {most}"))
    };
    match parameters {
        Parameters::XPoint(p) => above(PARTS_MAX, &[("channels", u64::from(p.channels.value))]),
        Parameters::Nand(p) => {
            let units = [
                ("read_units", p.read_units.value),
                ("channels", p.channels.value),
                ("program_units", p.program_units.value),
                ("stalled_units", p.stalled_units.as_ref().map_or(0, |units| units.value)),
            ];
            let inside = p.commands_inside.as_ref().map_or(1, |most| most.value);
            let inside = [("max_in_flight", p.max_in_flight.value), ("commands_inside", inside)];
            above(PARTS_MAX, &units.map(|(name, value)| (name, u64::from(value)))).or_else(|| {
                above(IN_FLIGHT_MAX, &inside.map(|(name, value)| (name, u64::from(value))))
            })
        }
        Parameters::Hdd(p) => {
            above(IN_FLIGHT_MAX, &[("max_in_flight", u64::from(p.max_in_flight.value))])
        }
        Parameters::Cache(p, _) => {
            above(IN_FLIGHT_MAX, &[("clean_depth", u64::from(p.clean_depth.value))])
        }
        Parameters::Hop(p, _) => above(PARTS_MAX, &[("paths", u64::from(p.paths.value))]),
        Parameters::Ram(_) | Parameters::Cloud(_) | Parameters::Flow(_) | Parameters::Raid(..) => {
            None
        }
    }
}

/// Returns why a layer is impossible on the ones below.
fn impossible_layer(parameters: &Parameters, capacity: Bytes) -> Option<String> {
    let too_large = |most: u64| {
        (capacity.get() > most).then(|| {
            format!("capacity {capacity} is more than the {} of the layers below", Bytes(most))
        })
    };
    match parameters {
        Parameters::Raid(p, members) => {
            let least = match p.level.value {
                0 => 1,
                1 => 2,
                5 => 3,
                other => return Some(format!("`level` is {other}; allowed: 0, 1, 5")),
            };
            let count = members.len() as u64;
            if count < least {
                let level = p.level.value;
                return Some(format!("RAID {level} needs at least {least} devices"));
            }
            let chunk = p.chunk.value.get();
            if chunk == 0 || chunk % 4096 != 0 {
                return Some("`chunk` must be a multiple of 4KiB".into());
            }
            if members.iter().any(|member| member.capacity.get() < chunk) {
                return Some("`chunk` must fit on every member".into());
            }
            let smallest = members.iter().map(|member| member.capacity.get()).min().unwrap_or(0);
            too_large(match p.level.value {
                0 => smallest.saturating_mul(count),
                1 => smallest,
                _ => smallest.saturating_mul(count - 1),
            })
        }
        Parameters::Cache(p, both) => {
            let line = p.line.value.get();
            if line < 4096 || !line.is_power_of_two() || line > 1 << 20 {
                return Some("`line` must be a power of two from 4KiB to 1MiB".into());
            }
            if p.size.value.get() < line || p.size.value > both.0.capacity {
                return Some("`size` must hold a line and fit the fast device".into());
            }
            if p.dirty_max.as_ref().is_some_and(|most| most.value <= p.dirty_high.value) {
                return Some(
                    "`dirty_max` must be more than `dirty_high`, where cleaning begins".into(),
                );
            }
            too_large(both.1.capacity.get())
        }
        Parameters::Hop(p, device) => {
            if p.paths.value == 0 {
                return Some("`paths` must be above 0".into());
            }
            too_large(device.capacity.get())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P4800X: &str = include_str!("../../../../devices/intel-p4800x.toml");

    #[test]
    fn an_unknown_key_is_refused_with_the_allowed_ones() {
        let text = P4800X.replace("media_time", "meda_time");
        let error = Profile::parse(&text).unwrap_err().to_string();
        assert!(error.contains("meda_time") && error.contains("media_time"), "{error}");
    }

    #[test]
    fn a_device_that_cannot_be_is_refused_with_the_reason() {
        let text = P4800X.replace("value = \"24us\"", "value = \"6ms\"");
        let error = Profile::parse(&text).unwrap_err().to_string();
        assert!(error.contains("ten `stall_time_more`"), "{error}");
        let text = P4800X.replace("channels = { value = 7", "channels = { value = 4294967295");
        let error = Profile::parse(&text).unwrap_err().to_string();
        assert!(error.contains("at most 65536"), "{error}");
        let text = P4800X.replace("value = \"24us\"", "value = \"9223372036854775807ns\"");
        let error = Profile::parse(&text).unwrap_err().to_string();
        assert!(error.contains("at most a day"), "{error}");
        let error = Profile::parse(&P4800X.replace("schema = 1", "schema = 2")).unwrap_err();
        assert!(error.to_string().contains("allowed: 1"), "{error}");
    }
}

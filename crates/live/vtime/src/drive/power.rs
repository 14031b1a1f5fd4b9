//! The drive's power cut.

use device::Device;

use super::Drive;
use crate::power_cut::{Medium, PowerCut};

impl<D: Device> Drive<D> {
    /// The power is to be cut.
    ///
    /// # Errors
    /// The files that are there cannot be read.
    pub fn with_power_cut(self, plan: PowerCut) -> std::io::Result<Self> {
        Ok(Self { medium: Some(Box::new(Medium::new(plan)?)), ..self })
    }

    /// Whether it is time for the power cut.
    pub(crate) fn loses_power(&self) -> bool {
        self.medium.as_ref().is_some_and(|medium| self.totals.writes >= medium.write())
    }

    /// Cuts the power; no program may run any more.
    pub(crate) fn cut_power(&mut self) -> std::io::Result<()> {
        self.medium.take().map_or(Ok(()), |medium| medium.cut())
    }
}

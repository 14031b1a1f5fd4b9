//! Groups of identical block clients, as in jobs.

use units::{Seed, Share};

use crate::{BlockClient, BlockPlan, Client, ClientIndex};

/// Identical block clients.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockGroup {
    /// The plan of each client.
    pub plan: BlockPlan,
    /// Number of clients, each with its own thread on io_uring.
    pub clients: u32,
    /// io_uring: completions to wait for at once, at least 1.
    pub batch: u32,
    /// Share of each payload that cannot be compressed.
    pub random_payload: Share,
    /// Whether its operations are recorded at all.
    pub recorded: bool,
}

impl BlockGroup {
    /// One client of `plan` with incompressible data, recorded.
    #[must_use]
    pub const fn new(plan: BlockPlan) -> Self {
        Self { plan, clients: 1, batch: 1, random_payload: Share::ALL, recorded: true }
    }

    /// Its clients, each with its own random stream.
    #[must_use]
    pub fn clients(&self, seed: Seed) -> Vec<Client<BlockClient>> {
        let of = self.clients;
        let client = |index| Client {
            workload: BlockClient::new(self.plan.clone(), seed, ClientIndex { index, of }),
            classes: self.plan.classes(),
            open_loop: self.plan.arrivals.is_open(),
            recorded: self.recorded,
        };
        (0..of).map(client).collect()
    }
}

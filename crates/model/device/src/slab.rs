//! Numbered slots for requests in flight, reused when free.
//!
//! Invariant: a number identifies one request at a time.

/// A pool of numbered slots.
#[derive(Debug, Clone)]
pub struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T: Copy> Slab<T> {
    /// Puts `value` into a free slot.
    pub fn put(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = value;
                place
            }
            None => {
                self.places.push(value);
                (self.places.len() - 1) as u32
            }
        }
    }

    /// The contents of slot `place`.
    #[must_use]
    pub fn get(&self, place: u32) -> T {
        self.places[place as usize]
    }

    /// Mutable access to a slot.
    pub fn at(&mut self, place: u32) -> &mut T {
        &mut self.places[place as usize]
    }

    /// Number of slots in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Frees slot `place`; returns its contents.
    pub fn take(&mut self, place: u32) -> T {
        self.free.push(place);
        self.places[place as usize]
    }
}

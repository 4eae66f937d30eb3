//! Numbers that look random, and are the same in each run.

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

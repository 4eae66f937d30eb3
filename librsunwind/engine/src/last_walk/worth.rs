//! Whether to remember a walk: that costs about half as much as its look-ups, which is lost where
//! each stack is another one.

/// Walks in a row that reused too little before some are left out.
const PATIENCE: u32 = 4;
/// How many are then neither remembered nor compared. What is remembered stays true meanwhile. Two
/// are again after that: the program may do something else by now.
const LEFT_OUT: u32 = 12;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    /// How many walks in a row reused too little, and from [`PATIENCE`] on were left out.
    poor: u32,
}

impl Worth {
    pub(super) const fn new() -> Self {
        Self { poor: 0 }
    }

    /// Whether the walk that begins is to be remembered.
    pub(super) const fn may_pay(&mut self) -> bool {
        if self.poor < PATIENCE {
            return true;
        }
        self.poor = self.poor.wrapping_add(1);
        if self.poor > PATIENCE.wrapping_add(LEFT_OUT) {
            self.poor = PATIENCE.wrapping_sub(2);
        }
        self.poor < PATIENCE
    }

    /// A walk was remembered that reused so many of its frames.
    pub(super) const fn count(&mut self, reused: usize, frames: usize) {
        self.poor = match reused.wrapping_mul(3) < frames {
            true => self.poor.wrapping_add(1),
            false => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_little_is_reused_most_walks_are_left_out_and_where_much_is_none() {
        let mut worth = Worth::new();
        let mut remembered = |reused: usize| {
            let walks = (0..1400).filter(|_| {
                let may_pay = worth.may_pay();
                if may_pay {
                    worth.count(reused, 60);
                }
                may_pay
            });
            walks.count()
        };
        assert_eq!(remembered(60), 1400);
        assert_eq!(remembered(19), 4 + 2 * 99);
        assert!(remembered(20) >= 1400 - 12);
        assert_eq!(remembered(20), 1400);
    }
}

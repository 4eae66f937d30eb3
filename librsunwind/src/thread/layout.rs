//! Where the parts of a state lie: of one that has a mapping to itself, and of several that share
//! one, so that threads by the thousand take fewer mappings.
//!
//! ```text
//! | guard | labels | handler stack … <- stack_top | state
//! | frames of this sample | of the sample before | spare |
//!
//! | guard | labels | handler stack | guard | labels | handler stack | … | state | state | …
//! | frames of the first | of the second | …
//! ```
//!
//! A fork child finds all from the first state on wiped, and must find the handler's stack and the
//! labels of the thread that forked all the same. So the address of a state says where it is in its
//! mapping: one alone begins a page, one of several lies so many lines into its page as it has
//! before it, and one more.

use super::room::Room;
use crate::sys::PAGE;
use engine::wire::sample::Frame;

/// Bytes for the labels of a thread's regions.
pub(super) const LABELS: usize = PAGE;
/// Bytes of the handler's stack: what a walk, a record and callbacks take, and the kernel's frame.
pub(crate) const HANDLER_STACK: usize = 80 * 1024;
/// Bytes for a state itself, whose frames may follow.
pub(super) const STATE: usize = 48 * LINE;

/// What a state has in front of all states: the guard, and these two.
const BELOW: usize = PAGE + LABELS + HANDLER_STACK;
const LINE: usize = 64;
/// So many share a mapping: what is wiped is then less than a huge page, of which none is to be
/// filled for a state.
const TOGETHER: usize = 7;

const _: () = assert!(STATE + TOGETHER * LINE <= PAGE);

/// Which state it is among those of its mapping, from zero, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    number: usize,
    of: usize,
}

impl Place {
    /// The only one of its mapping.
    pub const ALONE: Self = Self { number: 0, of: 1 };

    /// The first of several.
    pub const FIRST: Self = Self {
        number: 0,
        of: TOGETHER,
    };

    /// The others of them.
    pub fn others() -> impl Iterator<Item = Self> {
        (1..TOGETHER).map(|number| Self {
            number,
            ..Self::FIRST
        })
    }

    /// That of the state at an address.
    pub fn of(state: usize) -> Self {
        match (state % PAGE / LINE).checked_sub(1) {
            None => Self::ALONE,
            Some(number) => Self {
                number,
                ..Self::FIRST
            },
        }
    }

    /// Bytes of the mapping.
    pub fn mapping_size(self, max_depth: usize) -> usize {
        let frames = Room::bytes(max_depth).saturating_mul(self.of);
        let size = self.frames_offset().saturating_add(frames);
        size.next_multiple_of(PAGE)
    }

    /// From where on in the mapping it is wiped in a fork child.
    pub const fn wiped_offset(self) -> usize {
        BELOW.wrapping_mul(self.of)
    }

    /// Where its guard is in the mapping, a page.
    pub const fn guard_offset(self) -> usize {
        BELOW.wrapping_mul(self.number)
    }

    /// Where the state is in the mapping.
    pub const fn state_offset(self) -> usize {
        let line = if self.of == 1 { 0 } else { self.number + 1 };
        let page = self.number.wrapping_mul(PAGE);
        let within = page.wrapping_add(line.wrapping_mul(LINE));
        self.wiped_offset().wrapping_add(within)
    }

    /// Where the frames of all of them are in the mapping. Those of one alone are in its page.
    const fn frames_offset(self) -> usize {
        let states = match self.of {
            1 => STATE,
            all => all.wrapping_mul(PAGE),
        };
        self.wiped_offset().wrapping_add(states)
    }
}

/// Where the mapping of the state at an address begins.
fn mapping(state: usize) -> usize {
    state.wrapping_sub(Place::of(state).state_offset())
}

/// The end of the handler's stack of the state at an address, which may be wiped.
pub(super) fn stack_top(state: usize) -> usize {
    let end = Place::of(state).guard_offset().wrapping_add(BELOW);
    mapping(state).wrapping_add(end)
}

/// Where the frames of the state at an address lie.
pub(super) fn frames(state: *mut u8, max_depth: usize) -> *mut Frame {
    let place = Place::of(state as usize);
    let before = Room::bytes(max_depth).saturating_mul(place.number);
    let offset = place.frames_offset().wrapping_add(before);
    state
        .wrapping_sub(place.state_offset())
        .wrapping_add(offset)
        .cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_the_address_of_a_state_and_do_not_overlap() {
        const DEPTH: usize = 100;
        let mapping = 1usize << 40;
        let several = core::iter::once(Place::FIRST).chain(Place::others());
        for places in [vec![Place::ALONE], several.collect()] {
            let mut parts = Vec::new();
            for place in &places {
                let state = mapping + place.state_offset();
                assert_eq!(Place::of(state), *place);
                let top = stack_top(state);
                let frames = frames(state as *mut u8, DEPTH) as usize;
                assert_eq!((top % PAGE, state % LINE, frames % LINE), (0, 0, 0));
                let guard = mapping + place.guard_offset();
                parts.push((guard, guard + PAGE));
                parts.push((top - HANDLER_STACK - LABELS, top));
                assert!(top <= mapping + place.wiped_offset(), "not wiped");
                assert!(state >= mapping + place.wiped_offset(), "wiped");
                parts.push((state, state + STATE));
                parts.push((frames, frames + Room::bytes(DEPTH)));
            }
            parts.sort_unstable();
            assert_eq!(parts[0].0, mapping);
            assert!(parts.windows(2).all(|two| two[0].1 <= two[1].0));
            let (_, end) = parts[parts.len() - 1];
            assert!(end <= mapping + places[0].mapping_size(DEPTH));
        }
    }
}

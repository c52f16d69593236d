//! Which addresses are left out where there are too many. Pure.

use crate::discovery::subset::{Address, Subset};

/// The most addresses that are listed.
pub(super) const MOST: usize = 1000;

/// Cuts the subsets down to what may be listed, each in proportion: those not ready first, and ready ones
/// only if these alone are too many. `false` if there was nothing to cut.
pub(super) fn truncate(subsets: &mut [Subset]) -> bool {
    let ready: usize = subsets.iter().map(|subset| subset.addresses.len()).sum();
    let not_ready: usize = subsets.iter().map(|subset| subset.not_ready_addresses.len()).sum();
    if ready + not_ready <= MOST {
        return false;
    }
    if ready > MOST {
        subsets.iter_mut().for_each(|subset| subset.not_ready_addresses.clear());
        cut(subsets.iter_mut().map(|subset| &mut subset.addresses), ready, MOST);
    } else {
        cut(subsets.iter_mut().map(|subset| &mut subset.not_ready_addresses), not_ready, MOST - ready);
    }
    true
}

/// Each list keeps its share of `room`, rounded up, until the room is used up.
fn cut<'a>(lists: impl Iterator<Item = &'a mut Vec<Address>>, total: usize, room: usize) {
    let mut left = room;
    for list in lists {
        let share = (list.len() * room).div_ceil(total.max(1));
        list.truncate(share.min(left));
        left -= list.len();
    }
}

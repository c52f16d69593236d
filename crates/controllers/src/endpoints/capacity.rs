//! Which addresses to leave out at the limit. Pure.

use crate::discovery::subset::{Address, Subset};

/// The maximum number of addresses.
pub(super) const MAX_ADDRESSES: usize = 1000;

/// Truncates subsets to the limit, each in proportion: not-ready addresses first, ready ones only if they alone exceed
/// the limit. Returns `false` if nothing had to be removed.
pub(super) fn truncate(subsets: &mut [Subset]) -> bool {
    let ready: usize = subsets.iter().map(|subset| subset.addresses.len()).sum();
    let not_ready: usize = subsets.iter().map(|subset| subset.not_ready_addresses.len()).sum();
    if ready + not_ready <= MAX_ADDRESSES {
        return false;
    }
    if ready > MAX_ADDRESSES {
        subsets.iter_mut().for_each(|subset| subset.not_ready_addresses.clear());
        cut(subsets.iter_mut().map(|subset| &mut subset.addresses), ready, MAX_ADDRESSES);
    } else {
        cut(
            subsets.iter_mut().map(|subset| &mut subset.not_ready_addresses),
            not_ready,
            MAX_ADDRESSES - ready,
        );
    }
    true
}

/// Keeps each list's share of `room`, rounded up, until the room is used up.
fn cut<'a>(lists: impl Iterator<Item = &'a mut Vec<Address>>, total: usize, room: usize) {
    let mut left = room;
    for list in lists {
        let share = (list.len() * room).div_ceil(total.max(1));
        list.truncate(share.min(left));
        left -= list.len();
    }
}

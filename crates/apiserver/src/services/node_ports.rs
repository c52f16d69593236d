//! The node ports in use, as all servers of a cluster agree on them: a bitmap in one record, changed with a
//! compare-and-swap.
//!
//! It is v1.34's `ranges/servicenodeports`, so kube-apiserver may run on the same etcd. It is not an object of the API.
//! Without it (there is none before the first node port), the ports that services have are in use.

use std::collections::BTreeSet;
use std::sync::Arc;

use setpoint_store::{Change, Error, Expect, Payload, Record, Write};
use tokio::sync::Mutex;

use super::range::reserved_count;
use super::span::Span;
use crate::server::Server;
use crate::status::Status;
use crate::storage::{RangeAllocation, node_ports};

/// Maximum attempts to change the record: that many changes by other servers would have to overtake this one.
const ATTEMPTS: usize = 128;

pub(crate) struct NodePorts {
    first: u16,
    last: u16,
    /// Held while the record is changed, so that requests to one server do not compete.
    turn: Mutex<()>,
}

impl NodePorts {
    pub(super) fn new((first, last): (u16, u16)) -> Self {
        Self { first, last, turn: Mutex::default() }
    }

    pub(super) fn span(&self) -> Span {
        let (first, last) = (u128::from(self.first), u128::from(self.last));
        let reserved_count = reserved_count(last.saturating_sub(first) + 1, 16, 128, 32);
        Span { first, last, reserved_count }
    }

    /// Returns the range as v1.34 writes it.
    pub(super) fn range(&self) -> String {
        format!("{}-{}", self.first, self.last)
    }

    /// Returns the ports in use, as far as this server has seen them. `None`: there is no record yet.
    pub(super) async fn stored(&self, server: &Server) -> Result<Option<BTreeSet<u128>>, Status> {
        let record = server.store.get(&node_ports(), None).await.map_err(|why| server.refusal(why))?;
        record.map(|record| self.read(&record)).transpose()
    }

    fn read(&self, record: &Record) -> Result<BTreeSet<u128>, Status> {
        let stored = RangeAllocation::read(&record.value).map_err(Status::internal)?;
        if stored.range != self.range() {
            // As in v1.34. The repair of a server that starts with another range converts the record.
            return Err(Status::internal("the provided range does not match the current range"));
        }
        Ok(numbers(&stored.bitmap, self.first, self.last))
    }

    fn payload(&self, ports: &BTreeSet<u128>) -> Payload {
        let bitmap = bits(ports, self.first, self.last);
        RangeAllocation { range: self.range(), bitmap }.payload()
    }

    /// Changes the ports in use. `edit` returns whether to go on; it is repeated if another server was faster.
    pub(super) async fn change(
        &self,
        server: &Server,
        edit: impl Fn(&mut BTreeSet<u128>) -> bool,
    ) -> Result<bool, Status> {
        let _turn = self.turn.lock().await;
        let mut current = server.store.get(&node_ports(), None).await.map_err(|why| server.refusal(why))?;
        for _ in 0..ATTEMPTS {
            let before = match &current {
                Some(record) => self.read(record)?,
                None => server.services.look(server, |in_use| in_use.ports().collect()).await?,
            };
            let mut after = before.clone();
            if !edit(&mut after) {
                return Ok(false);
            }
            if current.is_some() && after == before {
                return Ok(true);
            }
            match self.replace(server, current.as_ref(), &after).await? {
                Ok(()) => return Ok(true),
                Err(newer) => current = newer,
            }
        }
        Err(Status::internal("the node ports keep changing"))
    }

    /// Writes the record over a state of it. The inner error is the newer state.
    async fn replace(
        &self,
        server: &Server,
        current: Option<&Arc<Record>>,
        ports: &BTreeSet<u128>,
    ) -> Result<Result<(), Option<Arc<Record>>>, Status> {
        let expect = current.map_or(Expect::Absent, |record| Expect::Revision(record.modified));
        let change = Change::Put { payload: self.payload(ports), ttl: None };
        match server.store.commit(Write { key: node_ports(), expect, change }).await {
            Ok(_) => Ok(Ok(())),
            Err(Error::Conflict { current }) => Ok(Err(current)),
            Err(why) => Err(server.refusal(why)),
        }
    }

    /// Makes the record match what `wanted` says about it. Writes nothing if it does. Returns whether it does now: another
    /// server may have been faster.
    pub(super) async fn repair(
        &self,
        server: &Server,
        wanted: impl FnOnce(&BTreeSet<u128>) -> BTreeSet<u128>,
    ) -> Result<bool, Status> {
        let _turn = self.turn.lock().await;
        let current = server.store.get(&node_ports(), None).await.map_err(|why| server.refusal(why))?;
        let stored = match &current {
            Some(record) => {
                let stored = RangeAllocation::read(&record.value).map_err(Status::internal)?;
                let (first, last) = parse_range(&stored.range)?;
                numbers(&stored.bitmap, first, last)
            }
            None => BTreeSet::new(),
        };
        let wanted = wanted(&stored);
        let payload = self.payload(&wanted);
        let is_fine = match &current {
            Some(record) => record.holds(&payload),
            None => wanted.is_empty(),
        };
        Ok(is_fine || self.replace(server, current.as_ref(), &wanted).await?.is_ok())
    }
}

/// Parses a range such as `30000-32767`.
fn parse_range(range: &str) -> Result<(u16, u16), Status> {
    let parsed =
        range.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    parsed.ok_or_else(|| {
        Status::internal(format_args!("the stored range of node ports is {range:?}, expected FIRST-LAST"))
    })
}

/// Returns the numbers whose bits are set. The bitmap is one large number, its highest byte first; its lowest bit is the
/// first number.
fn numbers(bitmap: &[u8], first: u16, last: u16) -> BTreeSet<u128> {
    let bits = bitmap.iter().rev().zip(0_u128..).flat_map(|(byte, at)| {
        (0..8_u128).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
    });
    bits.map(|bit| u128::from(first) + bit).filter(|number| *number <= u128::from(last)).collect()
}

/// Returns the bitmap of numbers, without leading zeros.
fn bits(numbers: &BTreeSet<u128>, first: u16, last: u16) -> Vec<u8> {
    let mut bitmap = Vec::new();
    for number in numbers.range(u128::from(first)..=u128::from(last)) {
        // At most 65,535.
        let bit = (number - u128::from(first)) as usize;
        bitmap.resize(bit / 8 + 1, 0);
        bitmap[bit / 8] |= 1 << (bit % 8);
    }
    bitmap.reverse();
    bitmap
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_is_one_large_number() {
        for (ports, expected) in [
            (vec![], &[][..]),
            (vec![30000], &[1]),
            (vec![30007], &[0x80]),
            (vec![30000, 30008], &[1, 1]),
            (vec![30001, 30023], &[0x80, 0, 2]),
        ] {
            let ports: BTreeSet<u128> = ports.into_iter().collect();
            assert_eq!(bits(&ports, 30000, 32767), expected);
            assert_eq!(numbers(expected, 30000, 32767), ports);
            assert_eq!(numbers(&[&[0, 0], expected].concat(), 30000, 32767), ports);
        }
        let all: BTreeSet<u128> = (30000..=32767).collect();
        assert_eq!(numbers(&bits(&all, 30000, 32767), 30000, 32767), all);
        assert_eq!(numbers(&[0xff; 400], 30000, 30003), (30000..=30003).collect());
    }

    #[test]
    fn a_range_has_two_ends() {
        assert!(matches!(parse_range("30000-32767"), Ok((30000, 32767))));
        for range in ["", "30000", "-", "a-b", "1-70000"] {
            assert!(parse_range(range).is_err(), "{range}");
        }
    }
}

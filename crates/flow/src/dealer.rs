//! Shuffle sharding: each flow gets a hand of queues. Two flows rarely share a whole hand, so a flow that fills its own
//! queues leaves others a free one.

/// How many bits of a hash a deal may use. With all 64 bits, the last card would be visibly uneven.
const MAX_HASH_BITS: f64 = 60.0;
const MAX_DECK: usize = 1 << 26;

/// A dealer of hands of a fixed size from a deck of a fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealer {
    deck: usize,
    hand: usize,
}

/// Why a hand size is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHand {
    #[error("deckSize {deck} or handSize {hand} is not positive")]
    NotPositive { deck: usize, hand: usize },
    #[error("handSize {hand} is greater than deckSize {deck}")]
    TooLarge { deck: usize, hand: usize },
    #[error("deckSize {deck} is impractically large")]
    Deck { deck: usize },
    #[error("required entropy bits of deckSize {deck} and handSize {hand} is greater than {MAX_HASH_BITS}")]
    Entropy { deck: usize, hand: usize },
}

impl Dealer {
    pub fn new(deck: usize, hand: usize) -> Result<Self, InvalidHand> {
        if deck == 0 || hand == 0 {
            return Err(InvalidHand::NotPositive { deck, hand });
        }
        if hand > deck {
            return Err(InvalidHand::TooLarge { deck, hand });
        }
        if deck > MAX_DECK {
            return Err(InvalidHand::Deck { deck });
        }
        if ((deck as f64).log2() * hand as f64).ceil() > MAX_HASH_BITS {
            return Err(InvalidHand::Entropy { deck, hand });
        }
        Ok(Self { deck, hand })
    }

    pub fn hand_size(&self) -> usize {
        self.hand
    }

    /// Deals the hand for a hash: distinct cards, each below the deck size.
    pub fn deal(&self, mut hash: u64, hand: &mut Vec<usize>) {
        hand.clear();
        for dealt in 0..self.hand {
            let left = (self.deck - dealt) as u64;
            hand.push((hash % left) as usize);
            hash /= left;
        }
        // Each number is an index among the remaining cards: skip the cards dealt before it, last first.
        for at in (1..self.hand).rev() {
            for before in (0..at).rev() {
                if hand[at] >= hand[before] {
                    hand[at] += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dealt(deck: usize, hand: usize, hash: u64) -> Vec<usize> {
        let mut cards = Vec::new();
        Dealer::new(deck, hand).unwrap().deal(hash, &mut cards);
        cards
    }

    #[test]
    fn hands_are_those_of_v1_34() {
        // Computed by hand from v1.34's arithmetic.
        assert_eq!(dealt(1, 1, 0), [0]);
        assert_eq!(dealt(5, 1, 8824642), [2]);
        assert_eq!(dealt(5, 2, 6), [1, 2]);
        assert_eq!(dealt(10, 3, 987), [7, 9, 2]);
    }

    #[test]
    fn a_hand_that_a_hash_cannot_decide_is_refused() {
        assert!(Dealer::new(0, 0).is_err() && Dealer::new(4, 5).is_err() && Dealer::new(4, 0).is_err());
        assert!(Dealer::new(1 << 27, 1).is_err());
        assert!(Dealer::new(512, 6).is_ok() && Dealer::new(512, 8).is_err());
    }

    #[test]
    fn every_card_is_dealt_about_as_often() {
        let dealer = Dealer::new(16, 4).unwrap();
        let (mut counts, mut hand) = ([0u32; 16], Vec::new());
        for hash in 0..43_680u64 {
            dealer.deal(hash, &mut hand);
            hand.iter().for_each(|card| counts[*card] += 1);
        }
        // 16 × 15 × 14 × 13 hashes cover every hand once, so each card is in exactly a quarter of them.
        assert_eq!(counts, [43_680 / 4; 16]);
    }

    proptest! {
        #[test]
        fn cards_of_a_hand_differ(deck in 1usize..200, hand in 1usize..8, hash: u64) {
            prop_assume!(Dealer::new(deck, hand).is_ok());
            let mut cards = dealt(deck, hand, hash);
            prop_assert!(cards.iter().all(|card| *card < deck));
            cards.sort_unstable();
            cards.dedup();
            prop_assert_eq!(cards.len(), hand);
        }
    }
}

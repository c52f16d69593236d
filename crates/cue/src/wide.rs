//! Unsigned integers of 256 bits: the products and quotients of decimal arithmetic.

use std::cmp::Ordering;

/// A number of 256 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wide {
    high: u128,
    low: u128,
}

/// Returns 10^exponent if it fits.
pub(crate) fn pow10(exponent: u32) -> Option<u128> {
    10u128.checked_pow(exponent)
}

impl From<u128> for Wide {
    fn from(low: u128) -> Self {
        Self { high: 0, low }
    }
}

impl PartialOrd for Wide {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wide {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.high, self.low).cmp(&(other.high, other.low))
    }
}

/// Multiplies two numbers of 128 bits.
fn product(a: u128, b: u128) -> Wide {
    const MASK: u128 = u64::MAX as u128;
    let (a1, a0) = (a >> 64, a & MASK);
    let (b1, b0) = (b >> 64, b & MASK);
    let low = a0 * b0;
    let middle = a1 * b0 + (low >> 64);
    let (middle, carried) = middle.overflowing_add(a0 * b1);
    let carry = if carried { 1u128 << 64 } else { 0 };
    Wide { high: a1 * b1 + (middle >> 64) + carry, low: (middle << 64) | (low & MASK) }
}

impl Wide {
    /// Multiplies. `None` if the product has more than 256 bits.
    pub(crate) fn times(self, factor: u128) -> Option<Self> {
        let low = product(self.low, factor);
        let high = product(self.high, factor);
        if high.high != 0 {
            return None;
        }
        Some(Self { high: low.high.checked_add(high.low)?, low: low.low })
    }

    /// Divides, with the remainder.
    pub(crate) fn divide(self, divisor: u128) -> (Self, u128) {
        let mut rest = 0u128;
        let mut quotient = Self { high: 0, low: 0 };
        for bit in (0..256).rev() {
            let overflow = rest >> 127 == 1;
            rest = (rest << 1) | self.bit(bit);
            if overflow || rest >= divisor {
                rest = rest.wrapping_sub(divisor);
                quotient.set(bit);
            }
        }
        (quotient, rest)
    }

    fn bit(self, at: u32) -> u128 {
        if at >= 128 { (self.high >> (at - 128)) & 1 } else { (self.low >> at) & 1 }
    }

    fn set(&mut self, at: u32) {
        if at >= 128 { self.high |= 1 << (at - 128) } else { self.low |= 1 << at }
    }

    /// Returns the number of decimal digits; zero has one.
    pub(crate) fn digits(self) -> u32 {
        if self.high == 0 {
            return self.low.checked_ilog10().map_or(1, |log| log + 1);
        }
        let scale = 10u128.pow(38);
        38 + self.divide(scale).0.digits()
    }

    /// Adds two numbers with signs. Callers pass at most 76 digits, which are below 2^253: the sum fits.
    pub(crate) fn add_signed(self, negative: bool, other: Self, other_negative: bool) -> (bool, Self) {
        if negative == other_negative {
            let (low, carry) = self.low.overflowing_add(other.low);
            let high = self.high.wrapping_add(other.high).wrapping_add(u128::from(carry));
            return (negative, Self { high, low });
        }
        let (large, small, sign) =
            if self >= other { (self, other, negative) } else { (other, self, other_negative) };
        let (low, borrow) = large.low.overflowing_sub(small.low);
        let high = large.high.wrapping_sub(small.high).wrapping_sub(u128::from(borrow));
        let sum = Self { high, low };
        (sign && sum != Self::from(0), sum)
    }

    /// Marks an inexact quotient: its last digit is not read as half or as exact.
    pub(crate) fn with_sticky(self) -> Self {
        Self { low: self.low | 1, ..self }
    }

    /// Rounds half-even to this many digits. Returns the digits and how many were dropped.
    pub(crate) fn round_to_digits(self, precision: u32) -> (u128, u32) {
        let digits = self.digits();
        if digits <= precision {
            return (self.low, 0);
        }
        let drop = digits - precision;
        let (mut value, mut left, mut below) = (self, drop, false);
        while left > 1 {
            let step = (left - 1).min(38);
            let (quotient, rest) = value.divide(pow10(step).unwrap_or(1));
            value = quotient;
            below |= rest != 0;
            left -= step;
        }
        let (value, last) = value.divide(10);
        let up = last > 5 || (last == 5 && (below || value.low & 1 == 1));
        let rounded = value.low + u128::from(up);
        // 9.99… becomes 10.0…: one digit more.
        if rounded == 10u128.pow(precision) { (rounded / 10, drop + 1) } else { (rounded, drop) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_quotients_are_inverse() {
        for (a, b) in [(u128::MAX, u128::MAX), (10u128.pow(38), 7), (1, 0), (u128::MAX, 3)] {
            let wide = product(a, b);
            if b != 0 {
                assert_eq!(wide.divide(b), (Wide::from(a), 0));
            }
        }
        assert_eq!(product(10u128.pow(38), 10u128.pow(38)).digits(), 77);
    }

    #[test]
    fn rounding_is_half_even() {
        let round = |value: u128| Wide::from(value).round_to_digits(2);
        assert_eq!(round(125), (12, 1));
        assert_eq!(round(135), (14, 1));
        assert_eq!(round(1251), (13, 2));
        assert_eq!(round(999), (10, 2));
    }
}

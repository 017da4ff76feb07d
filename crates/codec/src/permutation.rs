//! A keyed permutation of the numbers below any bound.
//!
//! **Source.** A Feistel network turns any keyed function into a reversible permutation of the numbers
//! with a given number of bits (Luby and Rackoff, *How to construct pseudorandom permutations from
//! pseudorandom functions*, 1988). For any other bound, the network is applied again until the number is
//! below the bound: *cycle walking* (Black and Rogaway, *Ciphers with arbitrary finite domains*, 2002).
//! The keyed function is SipHash-2-4 (Aumasson and Bernstein, 2012).

use std::fmt;

use siphasher::{sip, sip128};

use super::domain::Domain;
use super::key::{Key, KeySource};
use idmill::Result;

const ROUNDS: u8 = 8;
/// The label that precedes the domain in the input of the round key. A different algorithm would use a
/// different label.
const LABEL: &[u8] = b"idmill permutation v1";

/// A keyed permutation of a [`Domain`]. It maps each number to a number of the same domain, in an order
/// that depends only on the key and the domain.
///
/// **This is obfuscation, not encryption.** The permutation hides quantities and neighbouring ids from
/// customers, competitors and scrapers, but is not designed to resist a cryptanalyst. There is no
/// authentication: every number of the domain decodes to an id. Knowing an id must not grant access, so
/// check the permissions of each caller.
///
/// **The key can never be rotated.** Only the key that encoded an id decodes it, and ids under an old and
/// a new key can collide. If a key leaks, order and quantity leak. To change the key, give new ids another
/// prefix.
///
/// The permutation is a bijection: different ids stay different. A small domain hides little: if you have
/// fewer than a few thousand ids, choose a domain larger than their number. One id is encoded as 0.
///
/// # Algorithm v1
/// For a domain `0..=max` of `w` bits, so that other programs can decode the ids:
///
/// - `low` is the lower ⌈w/2⌉ bits of the number, `high` the others.
/// - The round key is SipHash-2-4 of 128 bits, under the key, over the bytes `idmill permutation v1` and
///   `max` (8 bytes, little-endian); the first half of the hash comes first.
/// - Rounds 0 to 7: F(r, half) is SipHash-2-4 of 64 bits, under the round key, over the eight bytes of
///   `half | r << 56`, little-endian. An even round r is `high ^= F(r, low)`, an odd round
///   `low ^= F(r, high)`; F is truncated to the width of the half that it changes.
/// - While the result is larger than `max`, all rounds are applied to it again.
///
/// The domain contains more than half of the 2^w numbers. So a number needs fewer than two passes on
/// average, and exactly one for a domain given in bits.
#[derive(Clone)]
pub struct Permutation {
    domain: Domain,
    rounds: sip::SipHasher24,
    key: Key,
    source: Option<KeySource>,
}

impl Permutation {
    /// Creates a permutation with version 1 of the algorithm. The result for a key, domain and number
    /// never changes.
    ///
    /// ```
    /// use idmill_codec::{Domain, Key, Permutation};
    ///
    /// # fn main() -> idmill::Result<()> {
    /// let permutation = Permutation::v1(Key::from(0x5eed_u64), Domain::below(1_000_000)?);
    /// let encoded = [permutation.encode(1)?, permutation.encode(2)?, permutation.encode(3)?];
    /// assert_eq!(encoded, [204698, 990079, 841359]);
    /// assert_eq!(permutation.decode(204698)?, 1);
    /// # Ok(()) }
    /// ```
    pub fn v1(key: Key, domain: Domain) -> Self {
        let mut seed = LABEL.to_vec();
        seed.extend(domain.max().to_le_bytes());
        let derived = sip128::SipHasher24::new_with_key(key.bytes()).hash(&seed).as_bytes();
        Self { domain, rounds: sip::SipHasher24::new_with_key(&derived), key, source: None }
    }

    /// Sets the location of the key. A printed format then has the location instead of the key.
    pub(super) fn kept_in(mut self, source: Option<KeySource>) -> Self {
        self.source = source;
        self
    }

    /// Returns the numbers that the permutation accepts and produces.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Encodes a number.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a number outside the domain.
    pub fn encode(&self, number: u64) -> Result<u64> {
        let number = self.domain.admit(number, "permute")?;
        Ok(self.walk(number, |round| round))
    }

    /// Decodes a number: the inverse of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a number outside the domain.
    pub fn decode(&self, number: u64) -> Result<u64> {
        let number = self.domain.admit(number, "permute")?;
        Ok(self.walk(number, |round| ROUNDS - 1 - round))
    }

    /// Applies the network until the result is in the domain. This terminates, because the number is on a
    /// cycle of the network's permutation and is itself in the domain.
    fn walk(&self, mut number: u64, order: impl Fn(u8) -> u8 + Copy) -> u64 {
        loop {
            number = self.network(number, order);
            if self.domain.contains(number) {
                return number;
            }
        }
    }

    /// Applies all rounds once: forward to encode, in reverse to decode. Each round is its own inverse.
    fn network(&self, number: u64, order: impl Fn(u8) -> u8) -> u64 {
        let width = self.domain.width();
        let low_bits = width.div_ceil(2);
        let (low_mask, high_mask) = (mask(low_bits), mask(width - low_bits));
        let (mut low, mut high) = (number & low_mask, number >> low_bits);
        for round in (0..ROUNDS).map(order) {
            if round % 2 == 0 {
                high ^= self.mix(round, low) & high_mask;
            } else {
                low ^= self.mix(round, high) & low_mask;
            }
        }
        high << low_bits | low
    }

    fn mix(&self, round: u8, half: u64) -> u64 {
        self.rounds.hash(&(half | u64::from(round) << 56).to_le_bytes())
    }

    /// Returns the key as written in a format: its location, or else the key itself.
    pub(super) fn written_key(&self) -> String {
        self.source.as_ref().map_or_else(|| format!("{:#x}", self.key.number()), ToString::to_string)
    }

    /// Returns the location of the key, or a placeholder that hides the key.
    pub(super) fn shown_key(&self) -> String {
        self.source.as_ref().map_or_else(|| "not shown".to_owned(), ToString::to_string)
    }
}

/// Returns a mask of this many low bits, 0 to 32.
fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Compares the key and the domain, and ignores the location of the key.
impl PartialEq for Permutation {
    fn eq(&self, other: &Self) -> bool {
        (self.key, self.domain) == (other.key, other.domain)
    }
}

impl Eq for Permutation {}

/// Hides the key.
impl fmt::Debug for Permutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Permutation");
        debug.field("version", &1).field("domain", &self.domain).field("key", &self.key);
        debug.field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycle_walks_average_two_passes_and_one_for_bit_domains() {
        for (domain, longest) in
            [(Domain::below(1025), 2.0), (Domain::below(1500), 2.0), (Domain::bits(10), 1.0)]
        {
            let permutation = Permutation::v1(Key::from(9_u64), domain.unwrap());
            let max = permutation.domain.max();
            let passes = |number| {
                let mut passes = 1;
                let mut made = permutation.network(number, |round| round);
                while !permutation.domain.contains(made) {
                    passes += 1;
                    made = permutation.network(made, |round| round);
                }
                passes
            };
            let all: u32 = (0..=max).map(passes).sum();
            assert!(f64::from(all) / (max + 1) as f64 <= longest, "{all} passes for {max}");
        }
    }
}

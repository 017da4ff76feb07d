//! Bit reversal.

use super::domain::Domain;
use idmill::Result;

/// Reverses the bits of a number at a given width, so that consecutive numbers are far apart.
///
/// Use it against hotspots. A store that splits its keys into ranges (Spanner, Cassandra's ordered
/// partitions, HBase, …) puts consecutive keys on the same server. Reversed keys spread evenly over all
/// servers. A reversal hides nothing: two ids are enough to undo it. Choose 63 bits for a signed 64-bit
/// column, so that no key is negative.
///
/// ```
/// use idmill_codec::BitReversal;
///
/// # fn main() -> idmill::Result<()> {
/// let reversal = BitReversal::new(63)?;
/// assert_eq!(reversal.encode(1)?, 1 << 62);
/// assert_eq!(reversal.decode(1 << 62)?, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BitReversal {
    domain: Domain,
}

impl BitReversal {
    /// Creates a reversal of this many bits, 1 to 64.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for any other number of bits.
    pub fn new(bits: u32) -> Result<Self> {
        Ok(Self { domain: Domain::bits(bits)? })
    }

    /// Returns the numbers that the reversal accepts and produces.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Returns the number with its bits reversed.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a number with more bits.
    pub fn encode(&self, number: u64) -> Result<u64> {
        let number = self.domain.admit(number, "reverse")?;
        Ok(number.reverse_bits() >> (64 - self.domain.width()))
    }

    /// Decodes a number: the inverse of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a number with more bits.
    pub fn decode(&self, number: u64) -> Result<u64> {
        self.encode(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reversal_uses_its_width_and_rejects_wider_numbers() {
        for (bits, number, reversed) in [
            (1, 1, 1),
            (4, 0b0011, 0b1100),
            (31, 1, 1 << 30),
            (63, 1, 1 << 62),
            (64, 1, 1 << 63),
            (64, u64::MAX - 1, u64::MAX >> 1),
        ] {
            let reversal = BitReversal::new(bits).unwrap();
            assert_eq!(reversal.encode(number).unwrap(), reversed);
            assert_eq!(reversal.decode(reversed).unwrap(), number);
        }
        let reversal = BitReversal::new(31).unwrap();
        for wider in [reversal.encode(1 << 31), reversal.decode(1 << 31)] {
            let message = "2147483648 is too large for `reverse`, which accepts 0 to 2147483647; widen the codec, or lower \
                           the sequence's `max`";
            assert_eq!(wider.unwrap_err().to_string(), message);
        }
        for bits in [0, 65] {
            let error = BitReversal::new(bits).unwrap_err().to_string();
            assert_eq!(error, format!("configure: {bits} bits: choose 1 to 64"));
        }
    }

    #[test]
    fn consecutive_numbers_spread_over_all_key_ranges() {
        let reversal = BitReversal::new(63).unwrap();
        let parts: std::collections::BTreeSet<_> =
            (1000..1016).map(|id| reversal.encode(id).unwrap() >> 59).collect();
        assert_eq!(parts.len(), 16, "sixteen ids in a row, one in each sixteenth of the keys");
    }
}

//! Decisions read from bytes, so that one driver serves both proptest and the fuzzer. Every input is valid,
//! and a shorter one has fewer events.

#[derive(Debug)]
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte; 0 after the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// One of `0..n`.
    pub(crate) fn below(&mut self, n: u8) -> u8 {
        self.byte() % n
    }

    /// All eight bytes of a number.
    pub(crate) fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A number of any magnitude. Small ones and those near a power of two (the types' limits) are more
    /// frequent.
    pub(crate) fn number(&mut self) -> u64 {
        let small = u64::from(self.byte());
        match self.byte() {
            0..=159 => small,
            160..=199 => small << 8 | u64::from(self.byte()),
            shift @ 200..=231 => (1_u64 << ((shift - 200) * 2 + 1)).wrapping_add(small).wrapping_sub(128),
            232..=243 => u64::MAX - small,
            _ => self.word(),
        }
    }
}

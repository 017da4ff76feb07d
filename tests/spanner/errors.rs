//! What the real engine says, and what is made of it.

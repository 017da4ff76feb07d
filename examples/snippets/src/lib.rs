#![doc = include_str!("../../../docs/guide/snippets.md")]

//! The fixed compilation that `ci/test` times to compare machines. It uses only the standard library. If you
//! change this file, the figures in ci/README.md lose their unit.
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::{Debug, Write};

macro_rules! kinds {
    ($($name:ident)*) => { $(
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name { name: String, ids: Vec<u64>, next: Option<Box<$name>>, words: BTreeMap<String, u32> }

        impl $name {
            pub fn sorted(mut all: Vec<Self>) -> HashMap<String, VecDeque<Self>> {
                all.sort();
                all.dedup_by(|one, other| one.name.eq_ignore_ascii_case(&other.name));
                let mut found = HashMap::new();
                for one in all {
                    found.entry(one.name.to_uppercase()).or_insert_with(VecDeque::new).push_back(one);
                }
                found
            }

            pub fn text(&self) -> String {
                let mut text = String::new();
                for (word, count) in self.words.iter().filter(|(word, _)| word.parse::<f64>().is_err()) {
                    writeln!(text, "{word:>20}: {count:#x} of {:?}", self.ids.iter().rev().collect::<Vec<_>>()).unwrap();
                }
                self.next.as_ref().map_or(text.clone(), |next| text + &next.text())
            }
        }
    )* };
}

kinds!(A B C D E F G H I J K L M N O P Q R S T U V W X Y Z);

pub fn all(count: usize) -> impl Debug {
    (A::sorted(vec![A::default(); count]), Z::sorted(vec![Z::default(); count]))
}

//! Codecs are bijections, and their output never changes.

mod rejected;

use std::collections::BTreeSet;

use idmill::{ErrorKind, Result};
use idmill_codec::{Base, BitReversal, Domain, Format, Key, KeySource, Permutation};
use proptest::prelude::*;

fn permutation(key: u128, domain: Result<Domain>) -> Permutation {
    Permutation::v1(Key::from(key), domain.unwrap())
}

/// Returns a pseudorandom number without state. The number must not depend on the version of any crate,
/// because the tests need the same numbers permanently.
fn scatter(index: u64) -> u64 {
    let x = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

/// The expected values come from an implementation of the documented algorithm in another language. Never
/// change these values: otherwise, published ids could no longer be decoded.
#[test]
fn permutation_v1_never_changes() {
    let big = 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f_u128;
    let bytes = Key::from_bytes(b"correct horse battery staple").unwrap();
    let (i32, js, i64) = (Domain::bits(31), Domain::bits(53), Domain::bits(63));
    let (u64, million, ten) = (Domain::bits(64), Domain::below(1_000_000), Domain::below(10));
    for (key, domain, made) in [
        (Key::from(0_u64), &i32, [179_042_433, 691_449_996, 681_819_922]),
        (
            Key::from(0_u64),
            &u64,
            [1_765_630_263_161_561_672, 8_340_684_913_895_943_719, 149_706_490_189_161_082],
        ),
        (Key::from(0_u64), &ten, [5, 0, 6]),
        (Key::from(0x5eed_u64), &i32, [723_347_143, 667_276_520, 1_703_526_011]),
        (Key::from(0x5eed_u64), &js, [4_769_896_754_028_365, 6_553_122_139_419_685, 1_967_786_639_896_993]),
        (Key::from(0x5eed_u64), &million, [901_781, 204_698, 892_469]),
        (Key::from(big), &i32, [217_945_967, 789_055_926, 1_528_816_036]),
        (Key::from(big), &js, [8_259_488_828_874_803, 6_649_414_488_222_319, 1_476_507_771_287_564]),
        (
            Key::from(big),
            &i64,
            [3_990_385_327_136_853_929, 2_872_376_884_684_009_617, 4_434_400_826_982_802_402],
        ),
        (
            Key::from(big),
            &u64,
            [7_836_544_962_189_486_961, 12_969_928_840_818_224_589, 66_951_738_845_491_102],
        ),
        (Key::from(big), &million, [172_804, 410_313, 719_288]),
        (bytes, &i32, [1_254_400_284, 48_923_240, 283_377_120]),
        (bytes, &i64, [8_816_781_318_191_016_043, 7_162_005_354_780_427_692, 3_632_881_027_876_907_104]),
        (bytes, &million, [30_182, 212_223, 904_688]),
    ] {
        let domain = *domain.as_ref().unwrap();
        let permutation = Permutation::v1(key, domain);
        let numbers = [0, 1, domain.max()];
        assert_eq!(numbers.map(|number| permutation.encode(number).unwrap()), made, "{permutation:?}");
        assert_eq!(made.map(|number| permutation.decode(number).unwrap()), numbers, "{permutation:?}");
    }
}

/// Complete formats must also write the same texts as earlier versions.
#[test]
fn format_texts_never_change() {
    for (format, id, text) in [
        ("decimal", 7, "7"),
        ("pad(6)|prefix(A)|suffix(Z)", 7, "A000007Z"),
        ("reverse(bits=63)|base62", 1, "5UfZOVH2ZO4"),
        ("permute(key=0x5eed,bits=31)|crockford(check)|pad(8)|prefix(ORD-)", 1, "ORD-0KWBN78M"),
        ("permute(key=0x5eed,bits=31)|crockford(check)|pad(8)|group(4)|prefix(ORD-)", 2, "ORD-1RCB-7GEW"),
        ("permute(v=1,key=24301,below=1000000)|pad(6)", 1, "204698"),
    ] {
        assert_eq!(format.parse::<Format>().unwrap().encode(id).unwrap(), text, "{format}");
    }
}

#[test]
fn permutation_below_a_small_bound_is_a_bijection() {
    for bound in (1..=130).chain([255, 256, 257, 1000, 1023, 1024, 1025, 4097]) {
        for key in [0, 1, 0x5eed, u128::MAX] {
            let permutation = permutation(key, Domain::below(bound));
            let made: BTreeSet<u64> = (0..bound)
                .map(|number| {
                    let made = permutation.encode(number).unwrap();
                    assert_eq!(permutation.decode(made).unwrap(), number, "{number} below {bound}");
                    made
                })
                .collect();
            assert!(made.into_iter().eq(0..bound), "below {bound}, key {key}");
            for outside in [permutation.encode(bound), permutation.decode(bound)] {
                let says = format!("{bound} is too large for `permute`, which accepts 0 to {}; ", bound - 1);
                assert!(outside.unwrap_err().to_string().starts_with(&says), "{says}");
            }
        }
    }
}

#[test]
fn permutation_depends_on_key_and_domain() {
    let images = |key: u128, domain: Result<Domain>| {
        let permutation = permutation(key, domain);
        (0..100).map(|number| permutation.encode(number).unwrap()).collect::<Vec<_>>()
    };
    let some = images(7, Domain::bits(31));
    assert_eq!(some, images(7, Domain::below(1 << 31)));
    for other in [
        images(8, Domain::bits(31)),
        images(7 | 1 << 127, Domain::bits(31)),
        images(7, Domain::below((1 << 31) - 1)),
    ] {
        assert!(some.iter().zip(&other).filter(|(a, b)| a == b).count() <= 1);
    }
}

/// Changing one bit of the number or of the key changes half of the output bits on average.
#[test]
fn one_changed_bit_flips_half_of_the_output_bits() {
    for bits in [31_u32, 53, 63, 64] {
        let trials = 400_u64;
        let mut flips = vec![vec![0_u64; bits as usize]; bits as usize];
        let of_key = permutation(0x5eed, Domain::bits(bits));
        let of_other = permutation(0x5eec, Domain::bits(bits));
        let (mut by_number, mut by_key) = (0, 0);
        for trial in 0..trials {
            let number = scatter(trial) >> (64 - bits);
            let made = of_key.encode(number).unwrap();
            by_key += u64::from((made ^ of_other.encode(number).unwrap()).count_ones());
            for bit in 0..bits {
                let changed = made ^ of_key.encode(number ^ 1 << bit).unwrap();
                by_number += u64::from(changed.count_ones());
                for out in 0..bits {
                    flips[bit as usize][out as usize] += changed >> out & 1;
                }
            }
        }
        // Each sum must be within 6 standard deviations of the mean of fair coin flips. The limit is high
        // because many pairs of bits are tested.
        let close = |sum: u64, coins: u64| {
            (sum as f64 - coins as f64 / 2.0).abs() < 6.0 * (coins as f64).sqrt() / 2.0
        };
        assert!(close(by_number, trials * u64::from(bits * bits)), "{bits} bits: {by_number}");
        assert!(close(by_key, trials * u64::from(bits)), "{bits} bits: {by_key}");
        let worst = flips.iter().flatten().find(|sum| !close(**sum, trials));
        assert_eq!(worst, None, "of {trials}, at {bits} bits");
    }
}

/// Consecutive ids are spread evenly over the domain, by a chi-squared test over 64 parts.
#[test]
fn consecutive_ids_are_spread_evenly() {
    for domain in [
        Domain::bits(31),
        Domain::bits(53),
        Domain::bits(63),
        Domain::below(1_000_000),
        Domain::below(3_000_000_019),
    ] {
        let (permutation, max) = (permutation(1, domain.clone()), domain.unwrap().max());
        let mut parts = [0_u32; 64];
        let ids = 64_000_u32;
        for id in 1..=u64::from(ids) {
            let made = permutation.encode(id).unwrap();
            parts[usize::try_from(u128::from(made) * 64 / (u128::from(max) + 1)).unwrap()] += 1;
        }
        let expected = f64::from(ids) / 64.0;
        let chi: f64 = parts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        // A chi-squared distribution with 63 degrees of freedom has a mean of 63 and a standard deviation
        // of 11.
        assert!((20.0..130.0).contains(&chi), "{permutation:?}: {chi}");
    }
}

#[test]
fn format_error_does_not_contain_the_key() {
    for format in [
        "permute(key=hunter2,bits=99)",
        "permute(key=hunter2;bits=31)",
        "permute(key=abc,hunter2,bits=31)",
        "permute(key=abc,hunter2==,bits=31)",
        "permute(kye=hunter2,bits=31)",
        "permute(hunter2,bits=31)",
        "permute(key=abc|hunter2,bits=31)",
        "permute(key=abc)|hunter2",
        "permute(key=abc)hunter2,bits=31)",
        "permute(key=\"hunter2,bits=31)",
        "permute(key=\"a\\hunter2\",bits=31)",
        "permute(key=0x1hunter2,bits=31)|nothing",
        "permute(key=111111111111111111111111111111111111111111hunter2,bits=0)",
        "permute(key=999999999999999999999999999999999999999999999,bits=31)",
    ] {
        let error = format.parse::<Format>().unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(!told.contains("hunter2") && !told.contains("9999"), "{told}");
    }
    let format: Format = "permute(key=hunter2,bits=31)|base62".parse().unwrap();
    let number = format.to_string().split(['=', ',']).nth(1).unwrap().to_owned();
    assert!(number.starts_with("0x"));
    let told = format!("{format:?} {format:#?}");
    assert!(!told.contains("hunter2") && !told.contains(&number[2..]), "{told}");
    assert_eq!(format!("{format:?}"), "Format(permute(key=not shown,bits=31)|base62)");
}

#[test]
fn key_source_is_loaded_and_printed_instead_of_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a key, of ours");
    std::fs::write(&path, "0x5eed\n").unwrap();
    let text = format!("permute(key=\"file:{}\",bits=31)|crockford", path.display());
    let format = Format::load(&text).unwrap();
    assert_eq!(format.to_string(), text);
    assert_eq!(format, "permute(key=0x5eed,bits=31)|crockford".parse().unwrap());
    let looked = Format::parse_with("permute(key=env:K,bits=8)", |source| {
        assert_eq!(*source, KeySource::Env("K".into()));
        Ok(Key::from(3_u64))
    });
    assert_eq!(looked.unwrap().to_string(), "permute(key=env:K,bits=8)|decimal");
    std::fs::remove_file(&path).unwrap();
    let missing = Format::load(&text).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let message =
        format!("configure: cannot read the key file `{}`; create it, or correct the path", path.display());
    assert_eq!(missing.to_string(), message, "without a position in the format");
}

#[test]
fn debug_output_has_the_text_and_not_the_key() {
    let format: Format = "base62|prefix(u_)".parse().unwrap();
    assert_eq!(format!("{:?}", format.text(1_000_000).unwrap()), "Text(u_4C92)");
    let shown = format!("{:?}", permutation(24301, Domain::bits(10)));
    let domain = "domain: Domain { max: 1023 }";
    assert_eq!(
        shown,
        format!("Permutation {{ version: 1, {domain}, key: Key(not shown), source: None, .. }}")
    );
}

#[test]
fn permutations_are_equal_by_key_and_domain() {
    let one = permutation(1, Domain::bits(10));
    assert_eq!(one, permutation(1, Domain::below(1024)));
    assert_ne!(one, permutation(2, Domain::bits(10)));
    assert_ne!(one, permutation(1, Domain::bits(11)));
}

#[test]
fn id_outside_the_domain_fails_and_keeps_the_buffer() {
    let format: Format = "permute(key=1,bits=31)|base62".parse().unwrap();
    assert_eq!(format.domain(), Domain::bits(31).unwrap());
    let mut buffer = "kept".to_owned();
    for id in [1 << 31, u64::MAX] {
        let error = format.encode_into(id, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let message = format!(
            "{id} is too large for `permute`, which accepts 0 to 2147483647; widen the codec, or lower the sequence's `max`"
        );
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(buffer, "kept");
    format.encode_into((1 << 31) - 1, &mut buffer).unwrap();
    assert_eq!(format.decode(&buffer[4..]).unwrap(), (1 << 31) - 1);
}

/// Generates any format from its parts.
fn any_format() -> impl Strategy<Value = Format> {
    let domain = prop_oneof![
        (1_u32..=64).prop_map(|bits| Domain::bits(bits).unwrap()),
        (1_u64..).prop_map(|bound| Domain::below(bound).unwrap()),
        (1_u64..5000).prop_map(|bound| Domain::below(bound).unwrap()),
    ];
    let mapping = (domain, any::<u128>(), any::<bool>());
    let base = prop_oneof![
        Just(Base::Decimal),
        Just(Base::Base62),
        any::<bool>().prop_map(|check| Base::Crockford { check })
    ];
    let affix = proptest::option::of("[^\\p{Cc}]{1,16}");
    let parts = (proptest::collection::vec(mapping, 0..4), base, 0_u8..=32, 0_u8..=32, affix.clone(), affix);
    parts.prop_map(|(mappings, base, pad, group, prefix, suffix)| {
        let mut format = Format::new(base);
        for (domain, key, reverse) in mappings {
            let next = if reverse {
                format.clone().then(BitReversal::new(domain.width().max(1)).unwrap())
            } else {
                format.clone().then(Permutation::v1(Key::from(key), domain))
            };
            // `then` rejects a codec that is too narrow for the previous one.
            format = next.unwrap_or(format);
        }
        let format = if pad > 0 { format.pad(pad).unwrap() } else { format };
        let format = if group > 0 { format.clone().group(group).unwrap_or(format) } else { format };
        let format = prefix.map_or(format.clone(), |text| format.prefix(&text).unwrap());
        suffix.map_or(format.clone(), |text| format.suffix(&text).unwrap())
    })
}

proptest! {
    #[test]
    fn encoded_id_decodes_to_itself(format in any_format(), number: u64, other: u64) {
        let all = u128::from(format.domain().max()) + 1;
        let cut = |number: u64| u64::try_from(u128::from(number) % all).unwrap();
        let (id, other) = (cut(number), cut(other));
        let text = format.encode(id).unwrap();
        prop_assert_eq!(format.decode(&text).unwrap(), id);
        prop_assert_eq!(format.text(id).unwrap().to_string(), text.clone());
        prop_assert_eq!(format.encode(other).unwrap() == text, other == id);
        for edge in [0, format.domain().max()] {
            prop_assert_eq!(format.decode(&format.encode(edge).unwrap()).unwrap(), edge);
        }
    }

    #[test]
    fn printed_format_parses_to_itself(format in any_format()) {
        let printed = format.to_string();
        let again: Format = printed.parse().unwrap();
        prop_assert_eq!(&again, &format);
        prop_assert_eq!(again.to_string(), printed);
    }

    #[test]
    fn permutation_and_reversal_decode_their_output(bits in 1_u32..=64, key: u128, number: u64, bound in 1_u64..) {
        let number = number >> (64 - bits);
        let (permuted, reversed) = (permutation(key, Domain::bits(bits)), BitReversal::new(bits).unwrap());
        prop_assert_eq!(permuted.decode(permuted.encode(number).unwrap()).unwrap(), number);
        prop_assert_eq!(permuted.encode(permuted.decode(number).unwrap()).unwrap(), number);
        prop_assert_eq!(reversed.decode(reversed.encode(number).unwrap()).unwrap(), number);
        let walked = permutation(key, Domain::below(bound));
        prop_assert_eq!(walked.decode(walked.encode(number % bound).unwrap()).unwrap(), number % bound);
    }

    #[test]
    fn decoded_text_encodes_back_to_itself(format in any_format(), text in "[ -~]{0,20}") {
        if let Ok(id) = format.decode(&text) {
            let written = format.encode(id).unwrap();
            let plain = |text: &str| -> String {
                text.to_uppercase().chars().filter(|c| *c != '-').map(|c| match c { 'O' => '0', 'I' | 'L' => '1', c => c }).collect()
            };
            prop_assert_eq!(plain(&written), plain(&text));
        }
    }

    #[test]
    fn any_text_parses_or_is_rejected(text in "[a-z0-9_|(),=\"\\\\ ä-]{0,40}") {
        let _ = Format::parse_with(&text, |_| Ok(Key::from(1_u64)));
    }
}

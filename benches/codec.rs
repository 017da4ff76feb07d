//! The cost of a codec.
//!
//! `cargo bench -p idmill-bench --bench codec` prints the figures of `docs/guide/codecs.md`.

#![allow(missing_docs)] // a benchmark has no public interface

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use idmill_codec::Format;

const FORMATS: [(&str, &str); 8] = [
    ("decimal", "decimal"),
    ("base62", "base62"),
    ("crockford(check)", "crockford(check)"),
    ("reverse 63 bits", "reverse(bits=63)"),
    ("permute 31 bits", "permute(key=0x5eed,bits=31)"),
    ("permute 63 bits", "permute(key=0x5eed,bits=63)"),
    // The longest cycle walk: the bound is just above a power of two.
    ("permute below 2^30 + 1", "permute(key=0x5eed,below=1073741825)"),
    ("order number", "permute(key=0x5eed,bits=31)|crockford(check)|pad(8)|group(4)|prefix(ORD-)"),
];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots()
        .configure_from_args();
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Elements(1));
    for (name, format) in FORMATS {
        let format: Format = format.parse().expect("a format");
        // Use consecutive ids, as an allocator returns them, within the smallest domain.
        let mut ids = (1_u64..1 << 30).cycle();
        let mut text = String::with_capacity(64);
        group.bench_function(format!("{name}/encode"), |bencher| {
            bencher.iter(|| {
                text.clear();
                format.encode_into(ids.next().expect("without end"), &mut text).expect("in the domain");
                black_box(&text);
            });
        });
        let texts: Vec<_> = (1..=1000).map(|id| format.encode(id).expect("in the domain")).collect();
        let mut texts = texts.iter().cycle();
        group.bench_function(format!("{name}/decode"), |bencher| {
            bencher
                .iter(|| black_box(format.decode(texts.next().expect("without end")).expect("was encoded")));
        });
    }
    group.finish();
    criterion.final_summary();
}

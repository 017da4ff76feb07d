//! Tests of the library that can share one process. Each other test is a program: it forks, reads the log, or
//! measures a whole process, or another step of `ci/test` runs it.

mod administered;
mod allocator;
mod callers;
mod counting;
mod facade;
mod give_back;
mod guarded_reserves;
mod health;
mod lost;
mod max_age;
mod refills;
mod sequences;
mod tiers;
mod values;

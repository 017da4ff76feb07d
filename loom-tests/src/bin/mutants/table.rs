//! The known bugs, each as a text change and the model that must catch it.
//!
//! These mutants are left out, because they change nothing that can be observed:
//! - *`give_permit_back` with only `Release`, or `take_permit` with `Relaxed`.* The mailbox's queue and
//!   wake-up already order the caller and the actor.

/// A bug.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) edits: &'static [Edit],
    /// The model that must fail.
    pub(crate) model: &'static str,
    /// Whether a model that does not end counts as a catch.
    pub(crate) hangs: bool,
}

/// A text that occurs exactly once in the file, and its replacement.
pub(crate) struct Edit {
    pub(crate) file: &'static str,
    pub(crate) find: &'static str,
    pub(crate) replace: &'static str,
}

const fn mutant(name: &'static str, model: &'static str, edits: &'static [Edit]) -> Mutant {
    Mutant { name, edits, model, hangs: false }
}

const fn edit(file: &'static str, find: &'static str, replace: &'static str) -> Edit {
    Edit { file, find, replace }
}

const SEGMENT: &str = "src/state/segment.rs";
const STOCK: &str = "src/state/stock.rs";
const BLOCK: &str = "src/state/block/mod.rs";
const THREAD_BLOCK: &str = "src/state/block/thread.rs";
const CORE: &str = "src/state/core.rs";
const MAILBOX: &str = "src/state/mailbox.rs";
const DRIVER: &str = "src/refill/driver/mod.rs";
const ENGINE: &str = "src/refill/engine/mod.rs";

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant(
        "split-add",
        "signal::one_draw_signals",
        &[edit(
            SEGMENT,
            "let offset = self.cursor.offset.fetch_add(1, Ordering::Relaxed);",
            "let offset = self.cursor.offset.load(Ordering::Relaxed); self.cursor.offset.store(offset + 1, Ordering::Relaxed);",
        )],
    ),
    mutant(
        "several-draws-signal",
        "signal::one_draw_signals",
        &[
            edit(
                SEGMENT,
                "(offset ^ self.mark).wrapping_neg()",
                "u64::from(offset < self.mark).wrapping_neg()",
            ),
            edit(SEGMENT, "if got && offset == self.mark {", "if got && offset >= self.mark {"),
        ],
    ),
    mutant(
        "watermark-looked-up-after-the-draw",
        "signal::one_draw_signals",
        &[
            edit(SEGMENT, "(offset ^ self.mark).wrapping_neg()", "0"),
            edit(
                SEGMENT,
                "if got && offset == self.mark {",
                "if got && self.cursor.offset.load(Ordering::Relaxed) == self.mark + 1 {",
            ),
        ],
    ),
    mutant(
        "a-take-signals-if-it-ends-beyond-the-watermark",
        "signal::a_take_signals_as_a_draw_does",
        &[edit(
            SEGMENT,
            "let crossed = offset <= self.mark && self.mark < offset + n;",
            "let crossed = self.mark < offset + n;",
        )],
    ),
    mutant(
        "permit-checked-then-set",
        "signal::the_permit_is_not_lost_and_does_not_pile_up",
        &[edit(
            CORE,
            "!self.low.swap(true, Ordering::AcqRel)",
            "{ let low = self.low.load(Ordering::Acquire); self.low.store(true, Ordering::Release); !low }",
        )],
    ),
    mutant(
        "permit-cleared-after-the-look",
        "signal::the_permit_is_not_lost_and_does_not_pile_up",
        &[
            edit(DRIVER, "if !self.engine.is_low() {", "if false {"),
            edit(
                DRIVER,
                "let Output { reserve, effects } = self.engine.on(event, self.core.stock.remaining(), now);",
                "let level = self.core.stock.remaining(); if self.has_permit { self.give_permit_back(); } \
                 let Output { reserve, effects } = self.engine.on(event, level, now);",
            ),
        ],
    ),
    mutant(
        "a-turn-leaves-signals-asleep",
        "turn::what_a_turn_leaves_wakes_the_next",
        &[edit(MAILBOX, "self.wake.notify_one();\n        low\n", "low\n")],
    ),
    mutant(
        "permit-free-during-a-reserve",
        "turn::tries_during_a_reserve_signal_nothing",
        &[edit(
            DRIVER,
            "self.has_permit = self.has_permit || self.core.take_permit();",
            "self.give_permit_back();",
        )],
    ),
    mutant(
        "permit-back-without-another-look",
        "turn::a_draw_while_a_refill_lands_is_seen",
        &[edit(DRIVER, "self.step(Event::Low { wanted: 0 }, now).or(reserve)", "reserve")],
    ),
    mutant(
        "permit-back-after-the-look",
        "turn::a_draw_while_a_refill_lands_is_seen",
        &[
            edit(
                DRIVER,
                "return reserve;\n        }\n        self.give_permit_back();",
                "return reserve;\n        }",
            ),
            edit(
                DRIVER,
                "if !is_low || self.core.stats.failing()",
                "self.give_permit_back(); if !is_low || self.core.stats.failing()",
            ),
        ],
    ),
    mutant(
        "relaxed-link",
        "promotion::published_while_drawing",
        &[edit(
            "loom-tests/src/sync/arc_swap.rs",
            "self.index.swap(self.place(value), Ordering::Release);",
            "self.index.swap(self.place(value), Ordering::Relaxed);",
        )],
    ),
    mutant(
        "promotion-without-comparing",
        "promotion::a_late_promotion_undoes_nothing",
        &[edit(STOCK, "self.current.compare_and_swap(empty, next);", "self.current.store(next);")],
    ),
    mutant(
        "link-cleared-before-promotion",
        "promotion::draws_do_not_wait_while_ids_are_left",
        &[edit(
            STOCK,
            "self.current.compare_and_swap(empty, next);",
            "empty.next().store(None); self.current.compare_and_swap(empty, next);",
        )],
    ),
    mutant(
        "link-never-cleared",
        "promotion::draws_do_not_wait_while_ids_are_left",
        &[edit(STOCK, "empty.next().store(None);", "")],
    ),
    mutant(
        "segment-with-ids-is-replaced",
        "promotion::draws_do_not_wait_while_ids_are_left",
        &[edit(STOCK, "Some(tail) if chain.has_ids() =>", "Some(tail) if false =>")],
    ),
    mutant(
        "no-second-look-at-what-is-current",
        "promotion::draws_do_not_wait_while_ids_are_left",
        &[edit(
            STOCK,
            "let current = self.current();\n        if Arc",
            "else { return Err(empty.reason()); }\n        let current = self.current();\n        if Arc",
        )],
    ),
    mutant(
        "take-not-capped",
        "take_end::a_segment_is_cut_at_its_end",
        &[edit(SEGMENT, "let n = n.min(self.len);", "")],
    ),
    mutant(
        "take-keeps-ids-beyond-the-end",
        "take_end::a_take_goes_on_in_the_next_segment",
        &[edit(
            SEGMENT,
            "let range = self.whole().skip(offset).take_front(n);",
            "let range = IdRange::new(self.start + offset, n).expect(\"fits\");",
        )],
    ),
    mutant(
        "take-drops-the-part-that-is-there",
        "take_end::a_take_goes_on_in_the_next_segment",
        &[edit(
            SEGMENT,
            "let range = self.whole().skip(offset).take_front(n);",
            "let range = if offset + n > self.len { IdRange::EMPTY } else { self.whole().skip(offset).take_front(n) };",
        )],
    ),
    mutant(
        "a-large-take-uses-up-the-last-ids",
        "take_end::the_last_ids_stay_for_smaller_draws",
        &[edit(STOCK, "self.must_hold(n)?;", "")],
    ),
    mutant(
        "sealed-before-current-is-replaced",
        "take_end::ids_drained_for_a_take_follow_all_drawn",
        &[
            edit(
                STOCK,
                "self.current.store(Arc::new(Segment::empty(reason)));\n        let mut ids",
                "let mut ids",
            ),
            edit(
                STOCK,
                "ids.push(segment.seal()));",
                "ids.push(segment.seal())); self.current.store(Arc::new(Segment::empty(reason)));",
            ),
        ],
    ),
    mutant(
        "revoke-without-seal",
        "revoke::held_segments_are_sealed",
        &[edit(STOCK, "ids.push(segment.seal())", "ids.push(IdRange::new(1, segment.remaining()).unwrap())")],
    ),
    mutant(
        "sealed-in-two-steps",
        "revoke::held_segments_are_sealed",
        &[edit(
            SEGMENT,
            "self.whole().skip(self.cursor.offset.swap(SEALED, Ordering::Relaxed))",
            "let left = self.whole().skip(self.cursor.offset.load(Ordering::Relaxed)); \
             self.cursor.offset.store(SEALED, Ordering::Relaxed); left",
        )],
    ),
    mutant(
        "given-back-while-drawn",
        "close::what_is_given_back_was_not_drawn",
        &[edit(
            SEGMENT,
            "self.whole().skip(self.cursor.offset.swap(SEALED, Ordering::Relaxed))",
            "let left = self.whole().skip(self.cursor.offset.load(Ordering::Relaxed)); \
             self.cursor.offset.store(SEALED, Ordering::Relaxed); left",
        )],
    ),
    mutant(
        "publish-whatever-was-revoked",
        "revoke::what_was_reserved_before_is_not_published",
        &[edit(STOCK, "if self.generation() != generation {", "if self.generation() < generation {")],
    ),
    mutant(
        "generation-bumped-before-the-seals",
        "revoke::a_block_renewed_meanwhile_is_void",
        &[
            edit(STOCK, "self.generation.fetch_add(1, Ordering::Release);\n        count", "count"),
            edit(
                STOCK,
                "self.current.store(Arc::new(Segment::empty(reason)));",
                "self.current.store(Arc::new(Segment::empty(reason))); self.generation.fetch_add(1, Ordering::Release);",
            ),
        ],
    ),
    mutant(
        "generation-all-relaxed",
        "revoke::who_sees_the_generation_sees_the_seals",
        &[
            edit(STOCK, "self.generation.load(Ordering::Acquire)", "self.generation.load(Ordering::Relaxed)"),
            edit(
                STOCK,
                "self.generation.fetch_add(1, Ordering::Release);\n        count",
                "self.generation.fetch_add(1, Ordering::Relaxed);\n        count",
            ),
        ],
    ),
    mutant(
        "block-reads-the-generation-after-taking",
        "revoke::a_block_renewed_meanwhile_is_void",
        &[
            edit(BLOCK, "let generation = stock.generation();\n", ""),
            edit(
                BLOCK,
                "*self = Self::new(take(), generation);",
                "*self = Self::new(take(), stock.generation());",
            ),
        ],
    ),
    mutant(
        "block-does-not-look-at-the-generation",
        "revoke::blocks_are_void",
        &[edit(
            BLOCK,
            "if id == self.end || !stock.is_current(self.generation) {",
            "let _ = stock; if id == self.end {",
        )],
    ),
    mutant(
        "whoever-revokes-writes-the-next-id-of-a-thread-block",
        "thread_block::a_thread_keeps_what_it_renewed",
        &[edit(
            THREAD_BLOCK,
            "let left = block.give_up(stock, stats);",
            "let left = block.give_up(stock, stats); self.next.store(block.next, Ordering::Relaxed);",
        )],
    ),
    mutant(
        "a-thread-block-is-given-up-twice",
        "thread_block::what_was_given_up_is_void",
        &[edit(BLOCK, "self.generation = GIVEN_UP;", "")],
    ),
    mutant(
        "a-thread-block-is-given-up-without-the-lock",
        "thread_block::a_thread_keeps_what_it_renewed",
        &[edit(
            THREAD_BLOCK,
            "let _changing = self.changing.lock();\n        let mut block = self.block();\n        let left",
            "let mut block = self.block();\n        let left",
        )],
    ),
    mutant(
        "discard-takes-in-another-revocation",
        "revoke::a_new_identity_does_not_undo_it",
        &[edit(DRIVER, "self.sent_under += 1;", "self.sent_under = stock.generation();")],
    ),
    mutant(
        "the-end-outlives-a-revocation",
        "revoke::the_end_is_heard_of_after_it",
        &[edit(ENGINE, "(ErrorKind::Exhausted, _) if !flight.revoked =>", "(ErrorKind::Exhausted, _) =>")],
    ),
    mutant(
        "wake-before-the-signal",
        "wake::low_water_alone_wakes",
        &[edit(
            MAILBOX,
            "self.low.push(Arc::downgrade(core));\n",
            "self.wake.notify_one(); self.low.push(Arc::downgrade(core)); if true { return; }\n",
        )],
    ),
    mutant(
        "wake-before-the-message",
        "wake::callers_share_a_refill",
        &[
            edit(
                MAILBOX,
                "let mut inbox = self.inbox.lock();\n        if inbox.closed",
                "self.wake.notify_one();\n        let mut inbox = self.inbox.lock();\n        if inbox.closed",
            ),
            edit(MAILBOX, "drop(inbox);\n        self.wake.notify_one();", ""),
        ],
    ),
    mutant(
        "no-second-look-at-memory",
        "wake::callers_share_a_refill",
        &[edit(
            DRIVER,
            "if self.core.stock.remaining() >= want.needs()",
            "if self.core.stock.remaining() == u64::MAX",
        )],
    ),
    mutant(
        "last-come-first-served",
        "wake::first_come_first_served",
        &[edit(
            "src/refill/engine/queue.rs",
            "filled.callers.push_back(Waiting { ticket, waiter, want, deadline });",
            "filled.callers.push_front(Waiting { ticket, waiter, want, deadline });",
        )],
    ),
    mutant(
        "cancelled-reply-not-counted-by-the-caller",
        "cancel::every_id_is_drawn_or_counted",
        &[edit("src/state/reply.rs", "self.core.stats.gap_dropped(ids.len());", "drop(ids);")],
    ),
    mutant(
        "cancelled-reply-not-counted-by-the-actor",
        "cancel::every_id_is_drawn_or_counted",
        &[edit(DRIVER, "self.core.stats.gap_dropped(len);", "")],
    ),
    mutant(
        "question-taken-after-the-end",
        "close::a_caller_gets_an_id_or_hears_of_it",
        &[edit(MAILBOX, "if inbox.closed.is_some() {", "if false {")],
    ),
    mutant(
        "closed-is-opened-again",
        "close::closed_stays_closed",
        &[edit(
            STOCK,
            "self.current().reason() == ErrorKind::Closed {",
            "self.current().reason() == ErrorKind::Denied {",
        )],
    ),
    mutant(
        "ids-taken-while-sealed",
        "close::what_is_taken_is_not_given_back",
        &[edit(
            SEGMENT,
            "let offset = self.cursor.offset.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).ok()?;",
            "let offset = self.cursor.offset.load(Ordering::Relaxed); \
             self.cursor.offset.store(enough(offset)?, Ordering::Relaxed);",
        )],
    ),
    mutant(
        "an-end-replaces-ids",
        "end::reopened_ends_lose_no_ids",
        &[edit(STOCK, "Some(tail) if chain.has_ids() =>", "Some(tail) if tail.remaining() > 0 =>")],
    ),
    mutant(
        "an-end-follows-a-revocation",
        "end::a_revocation_removes_the_end",
        &[edit(
            STOCK,
            "self.append(Segment::empty(reason), generation, || ())",
            "{ let _ = generation; self.append(Segment::empty(reason), self.generation(), || ()) }",
        )],
    ),
    mutant(
        "a-revocation-leaves-the-reserve-in-flight",
        "flight::what_was_sent_before_it_is_void",
        &[edit(ENGINE, "flight.revoked = true;", "let _ = flight;")],
    ),
    mutant(
        "only-the-first-revocation-is-reported",
        "flight::two_revocations_are_both_seen",
        &[edit(DRIVER, "self.core.revocation_seen();", "")],
    ),
    mutant(
        "a-revocation-is-reported-too-early",
        "flight::what_was_sent_before_it_is_void",
        &[
            edit(
                "src/state/draw.rs",
                "let lost = self.revoke_stock(ErrorKind::Empty);",
                "let _ = mailbox.send(Message::Revoked(self.clone())); \
                 let lost = self.revoke_stock(ErrorKind::Empty);",
            ),
            edit(
                "src/state/draw.rs",
                "// A closed mailbox has no actor to notify.\n        let _ = mailbox.send(Message::Revoked(self.clone()));",
                "",
            ),
        ],
    ),
    mutant(
        "a-revocation-relies-on-an-unsent-message",
        "flight::two_revokers_are_both_seen",
        &[
            edit(
                MAILBOX,
                "let mut inbox = self.inbox.lock();\n        if inbox.closed",
                "if message.is_repeated() { return Ok(()); }\n        \
                 let mut inbox = self.inbox.lock();\n        if inbox.closed",
            ),
            edit(
                MAILBOX,
                "if message.is_repeated() {\n            return Ok(());\n        }\n        inbox.make_room();",
                "inbox.make_room();",
            ),
        ],
    ),
    mutant(
        "a-request-reserves-although-one-is-in-flight",
        "wake::callers_share_a_refill",
        &[edit(
            ENGINE,
            "if self.flight.is_some() || self.ended.is_some() || self.is_held",
            "if self.ended.is_some() || self.is_held",
        )],
    ),
    mutant(
        "insert-replaces",
        "registry::a_name_has_one_core",
        &[edit(
            "src/state/registry.rs",
            "let kept = self.cores.get_or_insert(name.clone(), created.clone());",
            "self.cores.remove_if(name, |_| true); let kept = self.cores.get_or_insert(name.clone(), created.clone());",
        )],
    ),
    mutant(
        "evicted-under-its-users",
        "registry::evicted_core_is_never_returned",
        &[edit(
            CORE,
            "self.users.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Relaxed).is_ok()",
            "self.users.swap(EVICTED, Ordering::AcqRel) != EVICTED",
        )],
    ),
    mutant(
        "evicted-in-two-steps",
        "registry::evicted_core_is_never_returned",
        &[edit(
            CORE,
            "self.users.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Relaxed).is_ok()",
            "let free = self.users.load(Ordering::Acquire) == 0; if free { self.users.store(EVICTED, Ordering::Release); } free",
        )],
    ),
];

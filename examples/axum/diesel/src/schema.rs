//! The tables, as `diesel print-schema` writes them.

#![allow(missing_docs, reason = "the macro generates items without documentation")]

diesel::table! {
    orders (id) {
        id -> BigInt,
    }
}

diesel::table! {
    invoices (number) {
        number -> BigInt,
        order_id -> BigInt,
    }
}

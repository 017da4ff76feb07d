//! The tables, as `diesel print-schema` writes them.

#![allow(missing_docs, reason = "the macro writes more than can be documented")]

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

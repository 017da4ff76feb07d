-- A service of yours has this in its migrations.
CREATE TABLE IF NOT EXISTS orders (
    id bigint PRIMARY KEY
);
CREATE TABLE IF NOT EXISTS invoices (
    number bigint PRIMARY KEY,
    order_id bigint NOT NULL UNIQUE REFERENCES orders
);

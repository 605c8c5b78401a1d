-- Orders of a shop, and a role that may read them and nothing else. Run by psql with the variable
-- `password`; see ../README.md.
CREATE TABLE IF NOT EXISTS products (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE IF NOT EXISTS orders (
  id int PRIMARY KEY, product int NOT NULL REFERENCES products, day date NOT NULL, cents int NOT NULL
);
INSERT INTO products VALUES (1, 'kettle'), (2, 'teapot'), (3, 'cup') ON CONFLICT DO NOTHING;
INSERT INTO orders
  SELECT n, 1 + n % 3, date '2026-11-01' + n % 14, 500 + 25 * (n % 40)
  FROM generate_series(1, 420) AS n
  ON CONFLICT DO NOTHING;
CREATE ROLE clerk LOGIN PASSWORD :'password';
GRANT SELECT ON products, orders TO clerk;

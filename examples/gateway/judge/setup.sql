-- What the judge's problem is about, and a role that may read it and nothing else. PASSWORD is put
-- in by whoever runs this; see ../README.md.
CREATE DATABASE IF NOT EXISTS judge;
USE judge;
CREATE OR REPLACE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL);
CREATE OR REPLACE TABLE orders (id INT PRIMARY KEY, customer INT NOT NULL, cents INT NOT NULL);
INSERT INTO customers VALUES (1, 'Ada'), (2, 'Barbara'), (3, 'Grace'), (4, 'Margaret');
INSERT INTO orders VALUES
  (1, 1, 1250), (2, 2, 300), (3, 1, 4000), (4, 3, 9900), (5, 3, 150), (6, 2, 2600);
CREATE OR REPLACE USER judge@'%' IDENTIFIED BY 'PASSWORD';
GRANT SELECT ON judge.* TO judge@'%';

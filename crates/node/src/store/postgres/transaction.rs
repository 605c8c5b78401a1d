//! A transaction on PostgreSQL: statements, values and outcome.

use std::collections::HashMap;
use std::error::Error;

use ::postgres::fallible_iterator::FallibleIterator as _;
use ::postgres::types::private::BytesMut;
use ::postgres::types::{FromSql, IsNull, ToSql, Type};
use ::postgres::{GenericClient, Statement};

use super::super::error::{SqlStoreError, abbreviated};
use super::super::sqlite::check_parameters;
use super::super::value::{SqlRow, SqlValue};
use super::super::{StoreDialect, StoreTransaction};
use super::{TransactionFate, failure};

/// Maximum number of prepared statements of a connection.
const STATEMENTS_MAX: usize = 256;

/// Prepared statements of one connection, by their text.
#[derive(Default)]
pub(super) struct PreparedStatements(HashMap<String, Statement>);

impl PreparedStatements {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn keep(&mut self, sql: &str, statement: &Statement) {
        // The texts are constants in the code, so this happens only for composed statements.
        if self.0.len() >= STATEMENTS_MAX {
            self.0.clear();
        }
        self.0.insert(sql.to_owned(), statement.clone());
    }
}

/// A transaction, or a connection for one statement that is a transaction by itself.
pub(super) struct PostgresTransaction<'t, C> {
    inner: &'t mut C,
    statements: &'t mut PreparedStatements,
    rows_max: usize,
    /// Consequence of the first failed statement for the transaction.
    fate: Option<TransactionFate>,
}

impl<'t, C: GenericClient> PostgresTransaction<'t, C> {
    pub(super) fn new(
        inner: &'t mut C,
        statements: &'t mut PreparedStatements,
        rows_max: usize,
    ) -> Self {
        PostgresTransaction { inner, statements, rows_max, fate: None }
    }

    /// Returns the fate of the transaction.
    pub(super) fn fate(&self) -> Option<TransactionFate> {
        self.fate
    }

    /// Runs `body` unless an earlier statement failed, and records a failure.
    fn guarded<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, (TransactionFate, SqlStoreError)>,
    ) -> Result<T, SqlStoreError> {
        if self.fate.is_some() {
            return Err(SqlStoreError::Spoiled);
        }
        body(self).map_err(|(fate, error)| {
            self.fate = Some(fate);
            error
        })
    }

    fn prepare(
        &mut self,
        sql: &str,
        parameters: &[SqlValue],
    ) -> Result<Statement, (TransactionFate, SqlStoreError)> {
        let statement = match self.statements.0.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.inner.prepare(sql).map_err(|error| failure(sql, error))?;
                self.statements.keep(sql, &statement);
                statement
            }
        };
        let checked = check_parameters(sql, statement.params().len(), parameters)
            .and_then(|()| check_types(sql, statement.params(), parameters));
        checked.map_err(|error| (TransactionFate::Failed, error))?;
        Ok(statement)
    }

    fn rows(
        &mut self,
        sql: &str,
        statement: &Statement,
        parameters: &[SqlValue],
    ) -> Result<Vec<SqlRow>, (TransactionFate, SqlStoreError)> {
        let columns = statement.columns().len();
        let mut found = Vec::new();
        let parameters = parameters.iter().map(|value| value as &(dyn ToSql + Sync));
        let rows = self.inner.query_raw(statement, parameters);
        let mut rows = rows.map_err(|error| failure(sql, error))?;
        while let Some(row) = rows.next().map_err(|error| failure(sql, error))? {
            if found.len() == self.rows_max {
                let error =
                    SqlStoreError::TooManyRows { sql: abbreviated(sql), rows_max: self.rows_max };
                return Err((TransactionFate::Failed, error));
            }
            let mut values = Vec::with_capacity(columns);
            for index in 0..columns {
                let value = row.try_get::<_, Option<DecodedColumn>>(index);
                let value = value.map_err(|error| failure(sql, error))?;
                values.push(value.map_or(SqlValue::Null, |decoded| decoded.0));
            }
            found.push(SqlRow::new(values));
        }
        Ok(found)
    }
}

impl<C: GenericClient> StoreTransaction for PostgresTransaction<'_, C> {
    fn execute(&mut self, sql: &str, parameters: &[SqlValue]) -> Result<u64, SqlStoreError> {
        self.guarded(|this| {
            let statement = this.prepare(sql, parameters)?;
            let parameters: Vec<&(dyn ToSql + Sync)> =
                parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
            this.inner.execute(&statement, &parameters).map_err(|error| failure(sql, error))
        })
    }

    fn query(&mut self, sql: &str, parameters: &[SqlValue]) -> Result<Vec<SqlRow>, SqlStoreError> {
        self.guarded(|this| {
            let statement = this.prepare(sql, parameters)?;
            this.rows(sql, &statement, parameters)
        })
    }

    fn batch(&mut self, sql: &str) -> Result<(), SqlStoreError> {
        self.guarded(|this| this.inner.batch_execute(sql).map_err(|error| failure(sql, error)))
    }

    fn dialect(&self) -> StoreDialect {
        StoreDialect::Postgres
    }
}

/// Checks that each value fits the statement's type. SQLite accepts any value anywhere; this check
/// detects mistakes.
fn check_types(sql: &str, types: &[Type], parameters: &[SqlValue]) -> Result<(), SqlStoreError> {
    for (index, (kind, value)) in types.iter().zip(parameters).enumerate() {
        let fits = match value {
            SqlValue::Null => true,
            SqlValue::Int(number) => match *kind {
                Type::INT8 => true,
                Type::INT4 => i32::try_from(*number).is_ok(),
                Type::INT2 => i16::try_from(*number).is_ok(),
                Type::BOOL => matches!(number, 0 | 1),
                _ => false,
            },
            SqlValue::Real(_) => *kind == Type::FLOAT8,
            SqlValue::Text(_) => <&str as ToSql>::accepts(kind),
            SqlValue::Blob(_) => *kind == Type::BYTEA,
        };
        if !fits {
            let (number, value) = (index + 1, value.kind());
            let problem = format!("`${number}` is {value}, which does not fit `{kind}`");
            return Err(SqlStoreError::Parameters { sql: abbreviated(sql), problem });
        }
    }
    Ok(())
}

impl ToSql for SqlValue {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            SqlValue::Null => Ok(IsNull::Yes),
            SqlValue::Int(number) => match *kind {
                Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
                Type::INT2 => i16::try_from(*number)?.to_sql(kind, out),
                Type::BOOL => (*number != 0).to_sql(kind, out),
                _ => number.to_sql(kind, out),
            },
            SqlValue::Real(number) => number.to_sql(kind, out),
            SqlValue::Text(text) => text.to_sql(kind, out),
            SqlValue::Blob(bytes) => bytes.to_sql(kind, out),
        }
    }

    /// All types: `check_types` has already checked them, and names the wrong parameter.
    fn accepts(_kind: &Type) -> bool {
        true
    }

    ::postgres::types::to_sql_checked!();
}

/// A decoded column.
struct DecodedColumn(SqlValue);

impl<'a> FromSql<'a> for DecodedColumn {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(DecodedColumn(match *kind {
            Type::INT8 => SqlValue::Int(i64::from_sql(kind, raw)?),
            Type::INT4 => SqlValue::Int(i64::from(i32::from_sql(kind, raw)?)),
            Type::INT2 => SqlValue::Int(i64::from(i16::from_sql(kind, raw)?)),
            Type::BOOL => SqlValue::Int(i64::from(bool::from_sql(kind, raw)?)),
            Type::FLOAT8 => SqlValue::Real(f64::from_sql(kind, raw)?),
            Type::BYTEA => SqlValue::Blob(raw.to_vec()),
            _ => SqlValue::Text(String::from_sql(kind, raw)?),
        }))
    }

    /// `NUMERIC`, the type of sums of `BIGINT`, must be cast: its value may not fit.
    fn accepts(kind: &Type) -> bool {
        matches!(
            *kind,
            Type::INT8 | Type::INT4 | Type::INT2 | Type::BOOL | Type::FLOAT8 | Type::BYTEA
        ) || <String as FromSql<'_>>::accepts(kind)
    }
}

//! One axis of a matrix: a value, or an array of values.
//!
//! Invariant: never empty.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{BoolDeserializer, I64Deserializer, StrDeserializer};
use serde::de::{Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The values that a parameter takes, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Many<T>(Vec<T>);

impl<T> Many<T> {
    /// A single value.
    #[must_use]
    pub fn one(value: T) -> Self {
        Self(vec![value])
    }

    /// The values, in the order of the file.
    #[must_use]
    pub fn values(&self) -> &[T] {
        &self.0
    }
}

/// Expands a matrix by one axis: every job once for each of `values`, which `set` puts into it. The axis that
/// is expanded last varies fastest.
pub(crate) fn each<J: Clone, T>(jobs: Vec<J>, values: &[T], set: impl Fn(&mut J, &T)) -> Vec<J> {
    let mut out = Vec::with_capacity(jobs.len() * values.len());
    for job in jobs {
        for value in values {
            let mut changed = job.clone();
            set(&mut changed, value);
            out.push(changed);
        }
    }
    out
}

impl<T: Serialize> Serialize for Many<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => only.serialize(serializer),
            values => values.serialize(serializer),
        }
    }
}

struct ManyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ManyVisitor<T> {
    type Value = Many<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value or an array of values")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Many<T>, E> {
        let inner: BoolDeserializer<E> = value.into_deserializer();
        T::deserialize(inner).map(Many::one)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Many<T>, E> {
        let inner: I64Deserializer<E> = value.into_deserializer();
        T::deserialize(inner).map(Many::one)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Many<T>, E> {
        let inner: StrDeserializer<'_, E> = value.into_deserializer();
        T::deserialize(inner).map(Many::one)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Many<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element()? {
            values.push(value);
        }
        if values.is_empty() {
            return Err(A::Error::custom(
                "the matrix is empty here, so there would be no trial; write at least one value",
            ));
        }
        Ok(Many(values))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ManyVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Many<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Many_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "oneOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

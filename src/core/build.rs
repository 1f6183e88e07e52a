//! Packs the tables of the published vocabularies for the tokenizer.
//!
//! The crate `bpe-openai` computes them when it is built. Counting uses less than half of what it keeps; the rest is
//! left out here and what remains is compressed, so that the binary has a fifth of the bytes.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "exact-tokens")]
    packed::write().expect("the vocabularies are packed");
}

#[cfg(feature = "exact-tokens")]
mod packed {
    use bpe_openai::byte_pair_encoding::BytePairEncoding;
    use serde::{Deserialize, de::IgnoredAny};
    use std::{error::Error, fs::File, io::Write, path::Path};

    /// The indexes of the fields of [`BytePairEncoding`] that counting never reads: the tokens by their hash, and the
    /// automata that find all tokens from either end.
    const UNREAD: [usize; 3] = [2, 6, 7];

    pub(super) fn write() -> Result<(), Box<dyn Error>> {
        let folder = std::env::var("OUT_DIR")?;
        // A field that is left out is replaced with that of a vocabulary of single bytes, so that the format stays
        // valid.
        let smallest = BytePairEncoding::from_dictionary((0..=u8::MAX).map(|byte| vec![byte]), None);
        let smallest = rmp_serde::to_vec(&smallest)?;
        for (name, vocabulary) in [("o200k", bpe_openai::o200k_base()), ("cl100k", bpe_openai::cl100k_base())] {
            let whole = rmp_serde::to_vec(&vocabulary.bpe)?;
            let file = File::create(Path::new(&folder).join(name))?;
            let mut packed = flate2::write::ZlibEncoder::new(file, flate2::Compression::best());
            packed.write_all(&whole[..1])?;
            for (place, (kept, least)) in fields(&whole)?.into_iter().zip(fields(&smallest)?).enumerate() {
                packed.write_all(if UNREAD.contains(&place) { least } else { kept })?;
            }
            packed.finish()?;
        }
        Ok(())
    }

    /// Splits serialised data into its fields. The first byte holds their number.
    fn fields(serialised: &[u8]) -> Result<Vec<&[u8]>, rmp_serde::decode::Error> {
        let mut rest = &serialised[1..];
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let mut reader = rmp_serde::Deserializer::new(rest);
            IgnoredAny::deserialize(&mut reader)?;
            let (field, tail) = rest.split_at(rest.len() - reader.get_ref().len());
            fields.push(field);
            rest = tail;
        }
        Ok(fields)
    }
}

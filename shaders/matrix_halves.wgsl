// Numbers of magnitude below 2^15 as a half and the exact rest. The rest is 2^12 times as large, so that it has as many bits as the half
// where that is normal. Rounded to 11 significant bits by integers: conversions there and back some compilers leave out.
const REST: f32 = 4096.0;

struct Halves {
    high: vec4<f16>,
    low: vec4<f16>,
}

fn halves_of(v: vec4<f32>) -> Halves {
    let rounded = bitcast<vec4<f32>>((bitcast<vec4<u32>>(v) + vec4<u32>(0x1000u)) & vec4<u32>(0xffffe000u));
    return Halves(vec4<f16>(rounded), vec4<f16>((v - rounded) * REST));
}

// Numbers of magnitude below 2^15 as a half and the exact rest. The rest is made REST times as large, so that it has as many bits as the half
// where that is normal. Rounded to 11 significant bits by integers: conversions there and back some compilers leave out.
fn put_halves(at: u32, v: vec4<f32>) {
    let rounded = bitcast<vec4<f32>>((bitcast<vec4<u32>>(v) + vec4<u32>(0x1000u)) & vec4<u32>(0xffffe000u));
    halves[at] = vec4<f16>(rounded);
    halves[at + PART] = vec4<f16>((v - rounded) * REST);
}

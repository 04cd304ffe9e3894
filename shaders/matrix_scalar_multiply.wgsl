// 16 terms of a fragment's sums, of one part of each operand.
fn multiply_LEFT_RIGHT(a_at: u32, b_at: u32, lane: u32, c: ptr<function, Fragment>) {
    for (var e = 0u; e < whole(8u); e++) {
        let left = a_at + (lane / 16u + 2u * e) * A_PITCH;
        let right = b_at + lane % 16u;
        var sum = (*c)[e];
        for (var k = 0u; k < whole(16u); k++) {
            sum = fma(f32(a_LEFT[left + k]), f32(b_RIGHT[right + k * B_PITCH]), sum);
        }
        (*c)[e] = sum;
    }
}
